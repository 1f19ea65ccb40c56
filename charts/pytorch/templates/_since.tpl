{{/* Fields that an older Kubernetes would ignore: a sentence replaces the manifest. */}}

{{/* True if Kubernetes has at least this version: dict root, version. */}}
{{- define "pytorch.isSince" -}}
{{- if semverCompare (printf ">=%s.0-0" .version) .root.Capabilities.KubeVersion.Version -}}yes{{- end -}}
{{- end -}}

{{/* dict root, version, what (a sentence's start), instead (its end). */}}
{{- define "pytorch.needs" -}}
{{- if not (include "pytorch.isSince" .) -}}
{{- printf "%s needs Kubernetes %s, and this is %s: %s." .what .version .root.Capabilities.KubeVersion.Version .instead | fail -}}
{{- end -}}
{{- end -}}

{{- define "pytorch.checkVersion" -}}
{{- $values := .Values -}}
{{- $nodes := include "pytorch.nodes" . | int -}}
{{- if $values.sidecars -}}
{{- include "pytorch.needs" (dict "root" . "version" "1.29" "what" "sidecars: a container that ends with the job" "instead" "leave it out") -}}
{{- end -}}
{{- if eq $values.kind "job" -}}
{{- if and $values.elastic (gt $nodes 1) -}}
{{- include "pytorch.needs" (dict "root" . "version" "1.31" "what" "elastic: a Job that ends as its first node" "instead" "set kind to statefulset, or worldSize in place of elastic") -}}
{{- end -}}
{{- if gt $nodes 1 -}}
{{- include "pytorch.needs" (dict "root" . "version" "1.26" "what" "kind: a Job of several nodes" "instead" "set kind to statefulset, or write the job by `job show kubernetes-1.20`") -}}
{{- else if gt (int $values.restarts) 0 -}}
{{- include "pytorch.needs" (dict "root" . "version" "1.26" "what" "restarts: a Job that tells a lost node from a failing script" "instead" "set restarts to 0, or kind to statefulset") -}}
{{- end -}}
{{- end -}}
{{- end -}}
