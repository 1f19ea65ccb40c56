{{/* Names and labels of objects, and references of images. */}}

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

{{/* The name ends in a digest of the work, as a Job cannot be changed, and a new one must replace it. */}}
{{- define "pytorch.jobName" -}}
{{- $full := include "pytorch.fullname" . -}}
{{- if .Values.restartOnUpgrade -}}
{{- $runs := printf "%s\n%s" (include "pytorch.jobSpec" (dict "root" . "job" "")) (include "pytorch.files" .) -}}
{{- printf "%s-%s" ($full | trunc 47 | trimSuffix "-") ($runs | sha256sum | trunc 8) -}}
{{- else -}}
{{- $full -}}
{{- end -}}
{{- end -}}

{{/* The labels that select this release's pods. */}}
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

{{/* Labels of pods, which are the same in all versions of the chart. */}}
{{- define "pytorch.podMarks" -}}
labels:
  {{- merge (include "pytorch.selector" . | fromYaml) .Values.podLabels (include "pytorch.labels" . | fromYaml) | toYaml | nindent 2 }}
{{- with merge (dict) .Values.podAnnotations .Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Metadata of all other objects: dict root, name, annotations. */}}
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

{{/* An image's reference, by digest if there is one, else by tag: dict image, root. */}}
{{- define "pytorch.image" -}}
{{- with .root.Values.global.imageRegistry | default .image.registry -}}{{- . -}}/{{- end -}}
{{- .image.repository -}}
{{- with include "pytorch.tag" .image.tag -}}:{{- . -}}{{- end -}}
{{- with .image.digest -}}@{{- . -}}{{- end -}}
{{- end -}}

{{/* A tag is text, or an integer by --set. Helm reads integers of a file as floating-point numbers. */}}
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

{{/* Text in which Kubernetes does not expand variables. */}}
{{- define "pytorch.literal" -}}
{{- (or (contains "$(" .) (contains "$$" .)) | ternary (replace "$" "$$" .) . -}}
{{- end -}}
