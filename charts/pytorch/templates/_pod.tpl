{{/* The pod of a node: dict root, job (its name, empty of a StatefulSet). */}}

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
  automountServiceAccountToken: {{ not (empty $account) }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "pytorch.grace" .root }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- range $key := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" }}
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
    runAsNonRoot: true
    {{- if $values.securityContext.enabled }}
    runAsUser: {{ $values.securityContext.runAsUser | int64 }}
    runAsGroup: 0
    fsGroup: {{ $values.securityContext.fsGroup | int64 }}
    fsGroupChangePolicy: OnRootMismatch
    {{- end }}
    seccompProfile:
      type: RuntimeDefault
  {{- with include "pytorch.initContainers" .root | trim }}
  initContainers:
    {{- . | nindent 4 }}
  {{- end }}
  containers:
    {{- include "pytorch.container" . | nindent 4 }}
  volumes:
    {{- include "pytorch.podVolumes" .root | nindent 4 }}
{{- end -}}

{{/* Longer than the script may take to save: `run` itself ends after it. */}}
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
  args:
    {{- include "pytorch.command" .root | trim | nindent 4 }}
  env:
    {{- include "pytorch.env" . | trim | nindent 4 }}
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
  {{- with include "pytorch.probe" (dict "custom" $values.customLivenessProbe "own" $values.livenessProbe "command" (list "health" "--live")) }}
  livenessProbe:
    {{- . | nindent 4 }}
  {{- end }}
  {{- with include "pytorch.probe" (dict "custom" $values.customReadinessProbe "own" $values.readinessProbe "command" (list "health")) }}
  readinessProbe:
    {{- . | nindent 4 }}
  {{- end }}
  {{- with $values.customStartupProbe }}
  startupProbe:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "pytorch.containerSecurity" .root | nindent 4 }}
  volumeMounts:
    {{- include "pytorch.mounts" .root | nindent 4 }}
{{- end -}}

{{- define "pytorch.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: {{ .Values.securityContext.readOnlyRootFilesystem }}
capabilities:
  drop: [ALL]
{{- end -}}

{{/* A probe of the user's, or the chart's own where it is enabled: dict custom, own, command. */}}
{{- define "pytorch.probe" -}}
{{- if .custom -}}
{{- toYaml .custom -}}
{{- else if .own.enabled -}}
exec:
  command: {{ toJson .command }}
{{ toYaml (omit .own "enabled") }}
{{- end -}}
{{- end -}}

{{/* What is asked for and no more: a node that takes what another was promised slows down all. */}}
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
