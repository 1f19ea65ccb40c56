{{/* The number of nodes, and the variables of `run`: docs/reference/env-contract.md of torchbake. */}}

{{- define "pytorch.nodes" -}}
{{- if .Values.elastic -}}
{{- splitList ":" .Values.elastic | last -}}
{{- else -}}
{{- .Values.worldSize | int | max 1 -}}
{{- end -}}
{{- end -}}

{{/* Checks that a schema cannot express: a dict of sentences, which replace the manifest. */}}
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
{{- if and (or $values.command $values.args) (or $values.entrypoint.file $values.entrypoint.module) -}}
{{- fail "command and args: run in place of entrypoint.file and entrypoint.module: keep one of them." -}}
{{- end -}}
{{- if and $values.cloneFilesFromGit.enabled (not $values.cloneFilesFromGit.repository) -}}
{{- fail "cloneFilesFromGit.repository: is not set: name the repository." -}}
{{- end -}}
{{- if and $values.persistence.enabled (not (or $values.persistence.existingClaim $values.persistence.size)) -}}
{{- fail "persistence.size: is not set: set it, or existingClaim." -}}
{{- end -}}
{{- if and $values.nodeAffinityPreset.type (not (and $values.nodeAffinityPreset.key $values.nodeAffinityPreset.values)) -}}
{{- fail "nodeAffinityPreset.type: is set without nodeAffinityPreset.key and nodeAffinityPreset.values: name the label of the nodes." -}}
{{- end -}}
{{- if and $values.service.nodePorts.pytorch (eq $values.service.type "ClusterIP") -}}
{{- fail "service.nodePorts.pytorch: is a port of each node: set service.type to NodePort or LoadBalancer." -}}
{{- end -}}
{{- if and (eq $values.account "cluster") (include "pytorch.permissionsContainer" .) -}}
{{- fail "account: cluster lets the cluster choose the user, and changing the owner of a volume needs root: set volumePermissions.enabled to false, and leave permissions out of volumes." -}}
{{- end -}}
{{- end -}}

{{/* True if a command other than the image's runs, which the chart does not know. */}}
{{- define "pytorch.ownCommand" -}}
{{- if or .Values.command .Values.diagnosticMode.enabled }}yes{{ end -}}
{{- end -}}

{{/* True if no script is named, so that the image tests itself. */}}
{{- define "pytorch.smokes" -}}
{{- if not (or .Values.entrypoint.file .Values.entrypoint.module .Values.args (include "pytorch.ownCommand" .)) }}yes{{ end -}}
{{- end -}}

{{/* True if a GPU of NVIDIA is requested: by gpu, in resources, or by a resource claim. */}}
{{- define "pytorch.asksForGpu" -}}
{{- $resources := include "pytorch.resources" . | fromYaml -}}
{{- range $key, $amount := merge (dict) ($resources.limits | default dict) ($resources.requests | default dict) -}}
{{- if and (hasPrefix "nvidia.com/" $key) (ne (toString $amount) "0") }}yes{{ end -}}
{{- end -}}
{{- if $resources.claims }}yes{{ end -}}
{{- end -}}

{{/* `command` and `args` of the container. */}}
{{- define "pytorch.command" -}}
{{- $own := .Values.diagnosticMode.enabled | ternary .Values.diagnosticMode .Values -}}
{{- with $own.command }}
command:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $own.args }}
args:
  {{- toYaml $own.args | nindent 2 }}
{{- else if not $own.command }}
args:
  {{- include "pytorch.words" . | trim | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "pytorch.words" -}}
{{- $entry := .Values.entrypoint -}}
{{- $args := $entry.args -}}
{{- if kindIs "string" $args }}{{ $args = regexSplit "\\s+" (trim $args) -1 | compact }}{{ end -}}
{{- if $entry.module -}}
{{- $args = concat (list "run" "-m" $entry.module) $args -}}
{{- else if $entry.file -}}
{{- $args = concat (list "run" $entry.file) $args -}}
{{- else -}}
{{- $args = eq .Values.mode "distributed" | ternary (list "run" "/opt/torchbake/smoke" "ddp") (list "smoke" "tensor" "autograd") -}}
{{- if include "pytorch.asksForGpu" . }}{{ $args = concat $args (list "--device" "cuda") }}{{ end -}}
{{- end -}}
{{- range $args }}
- {{ include "pytorch.literal" (toString .) | quote }}
{{- end -}}
{{- end -}}

{{/* dict root, job (the Job's name; empty for a StatefulSet). */}}
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
  value: {{ include "pytorch.literal" (include "pytorch.tag" $values.cloneFilesFromGit.revision) | quote }}
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
{{- include "pytorch.noGpu" .root }}
{{- with $values.extraEnvVars }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* If NVIDIA's runtime is the cluster's default, a CUDA image would see all GPUs without this variable. */}}
{{- define "pytorch.noGpu" -}}
{{- $said := false -}}
{{- range .Values.extraEnvVars }}{{ if eq .name "NVIDIA_VISIBLE_DEVICES" }}{{ $said = true }}{{ end }}{{ end -}}
{{- if not (or $said (include "pytorch.asksForGpu" .)) }}
- name: NVIDIA_VISIBLE_DEVICES
  value: void
{{- end }}
{{- end -}}
