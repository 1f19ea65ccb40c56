{{/* A plain Job for one node, an Indexed Job for several, with the master in pod 0: dict root, job (the Job's name). */}}

{{- define "pytorch.jobSpec" -}}
{{- $values := .root.Values -}}
{{- $nodes := include "pytorch.nodes" .root | int -}}
{{- if gt $nodes 1 }}
completionMode: Indexed
completions: {{ $nodes }}
parallelism: {{ $nodes }}
{{- end }}
# Each failed pod counts.
backoffLimit: {{ mul $values.restarts $nodes }}
{{- with $values.activeDeadlineSeconds }}
activeDeadlineSeconds: {{ . | int64 }}
{{- end }}
{{- if not (kindIs "invalid" $values.ttlSecondsAfterFinished) }}
ttlSecondsAfterFinished: {{ $values.ttlSecondsAfterFinished | int64 }}
{{- end }}
{{- if include "pytorch.isSince" (dict "root" .root "version" "1.26") }}
podFailurePolicy:
  rules:
    # A pod that ends with its node does not count.
    - action: {{ gt (int $values.restarts) 0 | ternary "Ignore" "FailJob" }}
      onPodConditions:
        - type: DisruptionTarget
          status: "True"
    # Nodes did not find each other, or one was lost or drained. Other codes are the script's and end the job.
    - action: FailJob
      onExitCodes:
        containerName: pytorch
        operator: NotIn
        values: [83, 84, 87, 89, 143]
      onPodConditions: []
{{- end }}
{{- if and $values.elastic (gt $nodes 1) }}
successPolicy:
  rules:
    - succeededIndexes: "0"
{{- end }}
template:
  {{- include "pytorch.podTemplate" . | nindent 2 }}
{{- end -}}
