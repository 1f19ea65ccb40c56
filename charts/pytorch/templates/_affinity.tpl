{{/* `affinity`, else the presets: soft is a preference, hard a condition. */}}

{{- define "pytorch.affinity" -}}
{{- $all := dict -}}
{{- $pods := dict "labelSelector" (dict "matchLabels" (include "pytorch.selector" . | fromYaml)) "topologyKey" "kubernetes.io/hostname" -}}
{{- range $key, $preset := dict "podAffinity" .Values.podAffinityPreset "podAntiAffinity" .Values.podAntiAffinityPreset -}}
{{- if eq $preset "soft" -}}
{{- $_ := set $all $key (dict "preferredDuringSchedulingIgnoredDuringExecution" (list (dict "weight" 1 "podAffinityTerm" $pods))) -}}
{{- else if eq $preset "hard" -}}
{{- $_ := set $all $key (dict "requiredDuringSchedulingIgnoredDuringExecution" (list $pods)) -}}
{{- end -}}
{{- end -}}
{{- $preset := .Values.nodeAffinityPreset -}}
{{- $node := dict "matchExpressions" (list (dict "key" $preset.key "operator" "In" "values" $preset.values)) -}}
{{- if eq $preset.type "soft" -}}
{{- $_ := set $all "nodeAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" (list (dict "weight" 1 "preference" $node))) -}}
{{- else if eq $preset.type "hard" -}}
{{- $_ := set $all "nodeAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" (list $node))) -}}
{{- end -}}
{{- .Values.affinity | default $all | toYaml -}}
{{- end -}}
