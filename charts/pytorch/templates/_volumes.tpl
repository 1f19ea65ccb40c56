{{/* The claim of `persistence` and the `volumes` in one form: names in the pod, and names of claims. */}}

{{- define "pytorch.volumes" -}}
{{- $all := list -}}
{{- $own := .Values.persistence -}}
{{- if $own.enabled -}}
{{- $entry := dict "mountPath" $own.mountPath "subPath" $own.subPath -}}
{{- if $own.existingClaim -}}
{{- $_ := set $entry "claim" $own.existingClaim -}}
{{- else -}}
{{- $_ := merge $entry (pick $own "size" "accessMode" "accessModes" "storageClass" "annotations" "selector" "dataSource") -}}
{{- end -}}
{{- if .Values.volumePermissions.enabled }}{{ $_ := set $entry "permissions" "fix" }}{{ end -}}
{{- $all = append $all $entry -}}
{{- end -}}
{{- $named := list -}}
{{- $unnamed := 0 -}}
{{- range $place, $volume := concat $all .Values.volumes -}}
{{- $entry := merge (dict "name" (printf "volume-%d" $place)) $volume -}}
{{- if not (or $volume.claim $volume.hostPath) -}}
{{- $unnamed = add1 $unnamed -}}
{{- $number := gt $unnamed 1 | ternary (printf "-%d" $unnamed) "" -}}
{{- $_ := set $entry "claim" (printf "%s-data%s" (include "pytorch.fullname" $) $number) -}}
{{- end -}}
{{- $named = append $named $entry -}}
{{- end -}}
{{- toJson $named -}}
{{- end -}}

{{/* The pod's volumes. The image's own test gets no claim of `persistence`, which could delay nodes. */}}
{{- define "pytorch.mounted" -}}
{{- $all := include "pytorch.volumes" . | fromJsonArray -}}
{{- and .Values.persistence.enabled (include "pytorch.smokes" .) | empty | ternary $all (rest $all) | toJson -}}
{{- end -}}

{{- define "pytorch.volumeMount" -}}
- name: {{ .name }}
  mountPath: {{ .mountPath }}
  {{- with .subPath }}
  subPath: {{ . }}
  {{- end }}
  {{- if .readOnly }}
  readOnly: true
  {{- end }}
{{- end -}}

{{- define "pytorch.mounts" -}}
- name: tmp
  mountPath: /tmp
- name: shm
  mountPath: /dev/shm
{{- $source := include "pytorch.source" . }}
{{- if and $source (or (ne $source "git") (include "pytorch.ownGit" .)) }}
- name: job-files
  mountPath: /job
  readOnly: true
  {{- if eq $source "git" }}
  subPath: job
  {{- end }}
{{- else if $source }}
{{- include "pytorch.sshMount" . }}
{{- end }}
{{- range include "pytorch.mounted" . | fromJsonArray }}
{{ include "pytorch.volumeMount" . }}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "pytorch.podVolumes" -}}
- name: tmp
  emptyDir: {}
- name: shm
  emptyDir:
    medium: Memory
    sizeLimit: {{ .Values.shmSize }}
{{- $source := include "pytorch.source" . }}
{{- if eq $source "configMap" }}
- name: job-files
  configMap:
    name: {{ .Values.configMap }}
{{- else if eq $source "files" }}
- name: job-files
  configMap:
    name: {{ include "pytorch.fullname" . }}-files
    items:
      {{- range include "pytorch.files" . | fromJsonArray }}
      - key: {{ .key | quote }}
        path: {{ .path | quote }}
      {{- end }}
{{- else if include "pytorch.ownGit" . }}
- name: job-files
  emptyDir: {}
{{- end }}
{{- if and (eq $source "git") .Values.cloneFilesFromGit.sshSecret }}
- name: git-ssh
  secret:
    secretName: {{ .Values.cloneFilesFromGit.sshSecret }}
    defaultMode: 0440
{{- end }}
{{- range include "pytorch.mounted" . | fromJsonArray }}
- name: {{ .name }}
  {{- if .hostPath }}
  hostPath:
    path: {{ .hostPath }}
  {{- else }}
  persistentVolumeClaim:
    claimName: {{ .claim }}
  {{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "pytorch.permissionsContainer" -}}
{{- $fixed := list -}}
{{- range include "pytorch.mounted" . | fromJsonArray -}}
{{- if eq (.permissions | default "") "fix" }}{{ $fixed = append $fixed . }}{{ end -}}
{{- end -}}
{{- if $fixed -}}
{{- $security := .Values.securityContext -}}
- name: volume-permissions
  image: {{ include "pytorch.image" (dict "image" .Values.volumePermissions.image "root" .) }}
  imagePullPolicy: {{ .Values.volumePermissions.image.pullPolicy }}
  args:
    - --owner
    - {{ printf "%d:%d" (int64 $security.runAsUser) (int64 $security.fsGroup) | quote }}
    {{- range $fixed }}
    - {{ .mountPath }}
    {{- end }}
  {{- with .Values.volumePermissions.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  # The only container with root, and with the three capabilities that it needs.
  securityContext:
    runAsNonRoot: false
    runAsUser: 0
    runAsGroup: 0
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities:
      drop: [ALL]
      add: [CHOWN, FOWNER, DAC_OVERRIDE]
  volumeMounts:
    {{- range $fixed }}
    {{- include "pytorch.volumeMount" . | nindent 4 }}
    {{- end }}
{{- end -}}
{{- end -}}
