{{/* What objects are called, their labels, and their images. */}}

{{- define "pytorch.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "pytorch.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "pytorch.name" . -}}
{{- (contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name)) | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* A digest of what runs ends the name: a Job cannot be changed, so another one takes its place. */}}
{{- define "pytorch.jobName" -}}
{{- $full := include "pytorch.fullname" . -}}
{{- if .Values.restartOnUpgrade -}}
{{- $runs := printf "%s\n%s" (include "pytorch.jobSpec" (dict "root" . "job" "")) (include "pytorch.files" .) -}}
{{- printf "%s-%s" ($full | trunc 47 | trimSuffix "-") ($runs | sha256sum | trunc 8) -}}
{{- else -}}
{{- $full -}}
{{- end -}}
{{- end -}}

{{/* Which pods are this release's. */}}
{{- define "pytorch.selector" -}}
{{- $own := dict "app.kubernetes.io/name" (include "pytorch.name" .) "app.kubernetes.io/instance" .Release.Name -}}
{{- toYaml (merge (pick .Values.commonLabels "app.kubernetes.io/name" "app.kubernetes.io/instance") $own) -}}
{{- end -}}

{{/* Labels: the user's come before the chart's. */}}
{{- define "pytorch.labels" -}}
{{- $own := include "pytorch.selector" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service -}}
{{- toYaml (merge (deepCopy .Values.commonLabels) $own) -}}
{{- end -}}

{{/* Of a pod: nothing that another version of the chart would change. */}}
{{- define "pytorch.podMarks" -}}
labels:
  {{- merge (include "pytorch.selector" . | fromYaml) .Values.podLabels (include "pytorch.labels" . | fromYaml) | toYaml | nindent 2 }}
{{- with merge (dict) .Values.podAnnotations .Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Of all other objects: dict root, name, and annotations of its own. */}}
{{- define "pytorch.metadata" -}}
{{- $chart := printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" -}}
name: {{ .name }}
labels:
  {{- merge (include "pytorch.labels" .root | fromYaml) (dict "helm.sh/chart" $chart) | toYaml | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* An image's reference: dict image, root. The digest decides where both are there. */}}
{{- define "pytorch.image" -}}
{{- with .root.Values.global.imageRegistry | default .image.registry -}}{{- . -}}/{{- end -}}
{{- .image.repository -}}
{{- with include "pytorch.tag" .image.tag -}}:{{- . -}}{{- end -}}
{{- with .image.digest -}}@{{- . -}}{{- end -}}
{{- end -}}

{{/* A tag is a text, and an integer where --set reads one; a file's integers are floating-point numbers to Helm. */}}
{{- define "pytorch.tag" -}}
{{- kindIs "string" . | ternary . (int64 . | toString) -}}
{{- end -}}

{{- define "pytorch.pullSecrets" -}}
{{- $own := concat .Values.global.imagePullSecrets .Values.image.pullSecrets -}}
{{- if include "pytorch.ownGit" . }}{{ $own = concat $own .Values.git.pullSecrets }}{{ end -}}
{{- if .Values.volumePermissions.enabled }}{{ $own = concat $own .Values.volumePermissions.image.pullSecrets }}{{ end -}}
{{- range uniq $own }}
- name: {{ . }}
{{- end -}}
{{- end -}}

{{- define "pytorch.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "pytorch.fullname" .) "") -}}
{{- end -}}

{{/* A text in which Kubernetes fills in no variables. */}}
{{- define "pytorch.literal" -}}
{{- (or (contains "$(" .) (contains "$$" .)) | ternary (replace "$" "$$" .) . -}}
{{- end -}}
