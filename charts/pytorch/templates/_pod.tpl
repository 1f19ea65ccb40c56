{{/* The pod of a node: dict root, job (the Job's name; empty for a StatefulSet). */}}

{{- define "pytorch.podTemplate" -}}
{{- $values := .root.Values -}}
{{- $account := include "pytorch.serviceAccount" .root -}}
metadata:
  {{- include "pytorch.podMarks" .root | nindent 2 }}
spec:
  restartPolicy: {{ eq $values.kind "job" | ternary "Never" "Always" }}
  {{- if and (eq $values.kind "job") (gt (include "pytorch.nodes" .root | int) 1) }}
  subdomain: {{ include "pytorch.fullname" .root }}
  {{- end }}
  {{- with $account }}
  serviceAccountName: {{ . }}
  {{- end }}
  automountServiceAccountToken: {{ include "pytorch.token" .root }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "pytorch.grace" .root }}
  {{- range $key := list "priorityClassName" "schedulerName" }}
  {{- with get $values $key }}
  {{ $key }}: {{ . }}
  {{- end }}
  {{- end }}
  {{- with include "pytorch.affinity" .root | fromYaml }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- range $key := list "nodeSelector" "tolerations" "topologySpreadConstraints" "hostAliases" }}
  {{- with get $values $key }}
  {{ $key }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with include "pytorch.pullSecrets" .root }}
  imagePullSecrets:
    {{- . | trim | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "pytorch.podSecurity" .root | nindent 4 }}
  {{- with include "pytorch.initContainers" .root | trim }}
  initContainers:
    {{- . | nindent 4 }}
  {{- end }}
  containers:
    {{- include "pytorch.container" . | nindent 4 }}
  volumes:
    {{- include "pytorch.podVolumes" .root | nindent 4 }}
{{- end -}}

{{/* Longer than the script's time to save, as `run` ends after the script. */}}
{{- define "pytorch.grace" -}}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds -}}
{{- add .Values.timeouts.stop 15 -}}
{{- else -}}
{{- .Values.terminationGracePeriodSeconds | int64 -}}
{{- end -}}
{{- end -}}

{{- define "pytorch.initContainers" -}}
{{- include "pytorch.permissionsContainer" . }}
{{- if include "pytorch.ownGit" . }}
{{ include "pytorch.gitContainer" . }}
{{- end }}
{{- with .Values.initContainers }}
{{ toYaml . }}
{{- end }}
{{- range .Values.sidecars }}
{{ list (merge (dict "restartPolicy" "Always") .) | toYaml }}
{{- end }}
{{- end -}}

{{- define "pytorch.container" -}}
{{- $values := .root.Values -}}
- name: pytorch
  image: {{ include "pytorch.image" (dict "image" $values.image "root" .root) }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  {{- include "pytorch.command" .root | trim | nindent 2 }}
  env:
    {{- include "pytorch.env" . | trim | nindent 4 }}
  {{- with include "pytorch.envFrom" .root | trim }}
  envFrom:
    {{- . | nindent 4 }}
  {{- end }}
  {{- if eq $values.mode "distributed" }}
  ports:
    - name: master
      containerPort: {{ $values.port | int }}
      protocol: TCP
  {{- end }}
  {{- with include "pytorch.resources" .root | fromYaml }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- $commands := dict "livenessProbe" (list "health" "--live") "readinessProbe" (list "health") "startupProbe" (list "health" "--live") }}
  {{- range $name, $command := $commands }}
  {{- with include "pytorch.probe" (dict "root" $.root "name" $name "command" $command) }}
  {{ $name }}:
    {{- . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with $values.lifecycleHooks }}
  lifecycle:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "pytorch.containerSecurity" .root | nindent 4 }}
  volumeMounts:
    {{- include "pytorch.mounts" .root | nindent 4 }}
{{- end -}}

{{- define "pytorch.envFrom" -}}
{{- with .Values.extraEnvVarsCM }}
- configMapRef:
    name: {{ . }}
{{- end }}
{{- with .Values.extraEnvVarsSecret }}
- secretRef:
    name: {{ . }}
{{- end }}
{{- end -}}

{{/* The user's probe, or the chart's if it is enabled and the container runs `run`: dict root, name, command. */}}
{{- define "pytorch.probe" -}}
{{- $own := get .root.Values .name -}}
{{- if .root.Values.diagnosticMode.enabled -}}
{{- else if get .root.Values (printf "custom%s" (title .name)) -}}
{{- get .root.Values (printf "custom%s" (title .name)) | toYaml -}}
{{- else if and $own.enabled (not (include "pytorch.ownCommand" .root)) -}}
exec:
  command: {{ toJson .command }}
{{ toYaml (omit $own "enabled") }}
{{- end -}}
{{- end -}}

{{/* Limits equal to requests: a node that takes the CPUs of another one slows down all. */}}
{{- define "pytorch.resources" -}}
{{- $all := deepCopy .Values.resources -}}
{{- $more := dict -}}
{{- if gt (int .Values.gpu) 0 }}{{ $_ := set $more "nvidia.com/gpu" (.Values.gpu | int | toString) }}{{ end -}}
{{- if .Values.rdma }}{{ $_ := set $more .Values.rdma "1" }}{{ end -}}
{{- if $more -}}
{{- range $key := list "requests" "limits" -}}
{{- $_ := set $all $key (merge (dict) $more (get $all $key | default dict)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}
