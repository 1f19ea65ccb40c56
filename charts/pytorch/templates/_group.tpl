{{/* How many nodes there are, and what `run` is told of them: docs/env-contract.md of torchbake. */}}

{{- define "pytorch.nodes" -}}
{{- if .Values.elastic -}}
{{- splitList ":" .Values.elastic | last -}}
{{- else -}}
{{- .Values.worldSize | int | max 1 -}}
{{- end -}}
{{- end -}}

{{/* What the schema cannot say: dict of sentences that are told instead of a manifest. */}}
{{- define "pytorch.check" -}}
{{- $values := .Values -}}
{{- if and (eq $values.mode "standalone") (or (gt (int $values.worldSize) 1) $values.elastic $values.processesPerNode) -}}
{{- fail "mode: standalone is one process, and worldSize, elastic or processesPerNode asks for several: set mode to distributed." -}}
{{- end -}}
{{- if and $values.elastic (gt (int $values.worldSize) 1) -}}
{{- fail "elastic: lets nodes come and go, and worldSize gives them fixed ranks: keep one of them." -}}
{{- end -}}
{{- if and $values.entrypoint.file $values.entrypoint.module -}}
{{- fail "entrypoint.module: is named besides entrypoint.file: keep one of them." -}}
{{- end -}}
{{- if and (eq $values.mode "distributed") (not (or $values.entrypoint.file $values.entrypoint.module)) -}}
{{- fail "entrypoint.file: is not set, nor entrypoint.module: name what the nodes run." -}}
{{- end -}}
{{- if and $values.cloneFilesFromGit.enabled (not $values.cloneFilesFromGit.repository) -}}
{{- fail "cloneFilesFromGit.repository: is not set: name the repository." -}}
{{- end -}}
{{- end -}}

{{- define "pytorch.command" -}}
{{- $entry := .Values.entrypoint -}}
{{- $args := $entry.args -}}
{{- if kindIs "string" $args }}{{ $args = regexSplit "\\s+" (trim $args) -1 | compact }}{{ end -}}
{{- if $entry.module -}}
{{- $args = concat (list "run" "-m" $entry.module) $args -}}
{{- else if $entry.file -}}
{{- $args = concat (list "run" $entry.file) $args -}}
{{- else -}}
{{- $args = list "smoke" "tensor" "autograd" -}}
{{- end -}}
{{- range $args }}
- {{ include "pytorch.literal" (toString .) | quote }}
{{- end -}}
{{- end -}}

{{/* dict root, job: its name, empty of a StatefulSet. */}}
{{- define "pytorch.env" -}}
{{- $values := .root.Values -}}
{{- $full := include "pytorch.fullname" .root -}}
{{- $nodes := include "pytorch.nodes" .root | int -}}
{{- $source := include "pytorch.source" .root -}}
- name: MODE
  value: {{ $values.mode }}
- name: STOP_GRACE
  value: {{ $values.timeouts.stop | int64 | quote }}
{{- if and $source (or (ne $source "git") (include "pytorch.ownGit" .root)) }}
- name: JOB_DIR
  value: /job
{{- else if $source }}
- name: GIT_REPOSITORY
  value: {{ include "pytorch.literal" $values.cloneFilesFromGit.repository | quote }}
- name: GIT_REVISION
  value: {{ include "pytorch.literal" $values.cloneFilesFromGit.revision | quote }}
{{- include "pytorch.sshEnv" .root }}
{{- end }}
{{- if eq $values.mode "distributed" }}
- name: RENDEZVOUS_TIMEOUT
  value: {{ $values.timeouts.rendezvous | int64 | quote }}
- name: GROUP_TIMEOUT
  value: {{ $values.timeouts.group | int64 | quote }}
{{- if $values.elastic }}
- name: ELASTIC
  value: {{ $values.elastic | quote }}
- name: PET_MAX_RESTARTS
  value: {{ $values.restarts | int | quote }}
{{- else if and (eq $values.kind "statefulset") (gt $nodes 1) }}
- name: WORLD_SIZE
  value: {{ $nodes | quote }}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- else }}
- name: NNODES
  value: {{ $nodes | quote }}
{{- end }}
- name: NPROC_PER_NODE
  value: {{ $values.processesPerNode | default (max 1 (int $values.gpu)) | toString | quote }}
{{- if gt $nodes 1 }}
- name: MASTER_ADDR
  value: {{ printf "%s-0.%s" (.job | default $full) $full }}
{{- end }}
- name: MASTER_PORT
  value: {{ $values.port | int | quote }}
{{- end }}
{{- if $values.image.debug }}
{{- range list "TORCH_CPP_LOG_LEVEL" "TORCH_DISTRIBUTED_DEBUG" "NCCL_DEBUG" }}
- name: {{ . }}
  value: INFO
{{- end }}
{{- end }}
{{- with $values.extraEnvVars }}
{{ toYaml . }}
{{- end }}
{{- end -}}
