{{/*
Values of other charts become the chart's own keys, as other-charts.yaml says. Helm promises no order of templates, so
each file that makes something includes pytorch.settle first. All other templates read the chart's own keys alone.
*/}}

{{- define "pytorch.settle" -}}
{{- if not (hasKey .Values "settled") -}}
{{- /* A copy: before Helm 3.13 these maps are the chart's defaults themselves, which a release keeps. */ -}}
{{- range $key, $value := deepCopy (dict "all" .Values) | dig "all" dict }}{{ $_ := set $.Values $key $value }}{{ end -}}
{{- $table := .Files.Get "other-charts.yaml" | fromYaml -}}
{{- range $path, $value := $table.empty -}}
{{- if kindIs "invalid" (include "pytorch.valueAt" (dict "values" $.Values "path" $path) | fromJsonArray | first) -}}
{{- include "pytorch.setAt" (dict "values" $.Values "path" $path "value" $value) -}}
{{- end -}}
{{- end -}}
{{- range $check := list "pytorch.refusals" "pytorch.otherImages" -}}
{{- with include $check (dict "root" $ "table" $table) | fromJsonArray }}{{ fail (join "\n" .) }}{{ end -}}
{{- end -}}
{{- range $theirs, $ours := $table.same -}}
{{- $value := include "pytorch.valueAt" (dict "values" $.Values "path" $theirs) | fromJsonArray | first -}}
{{- if not (has $value (list nil "" (list) (dict))) -}}
{{- include "pytorch.setAt" (dict "values" $.Values "path" $ours "value" $value) -}}
{{- end -}}
{{- end -}}
{{- $adapt := dig "compatibility" "openshift" "adaptSecurityContext" "" .Values.global -}}
{{- if or (eq $adapt "force") (and (eq $adapt "auto") (.Capabilities.APIVersions.Has "security.openshift.io/v1")) -}}
{{- $_ := set .Values "account" "cluster" -}}
{{- end -}}
{{- $_ := set .Values "settled" true -}}
{{- end -}}
{{- end -}}

{{/* A sentence for each unsupported value, with the key to set: dict root, table. */}}
{{- define "pytorch.refusals" -}}
{{- $sentences := list -}}
{{- range $key := .table.needed -}}
{{- if kindIs "invalid" (include "pytorch.valueAt" (dict "values" $.root.Values "path" $key) | fromJsonArray | first) -}}
{{- $sentences = append $sentences (printf "%s: is null: set it, or leave the key out for its default." $key) -}}
{{- end -}}
{{- end -}}
{{- range $key, $entry := .table.refused -}}
{{- $value := include "pytorch.valueAt" (dict "values" $.root.Values "path" $key) | fromJsonArray | first -}}
{{- if not (or (empty $value) (has $value ($entry.idle | default list))) -}}
{{- $sentences = append $sentences (printf "%s: this chart has no such value: %s." $key $entry.instead) -}}
{{- end -}}
{{- end -}}
{{- toJson $sentences -}}
{{- end -}}

{{/* A sentence for each image that by its name is not torchbake's: dict root, table. */}}
{{- define "pytorch.otherImages" -}}
{{- $values := .root.Values -}}
{{- $sentences := list -}}
{{- range $pattern := .table.images -}}
{{- if and (regexMatch $pattern $values.image.repository) (not (include "pytorch.ownCommand" $.root)) -}}
{{- $sentences = append $sentences (printf "image.repository: %s is not an image of torchbake, and has no `run`: leave `image` out, or name an image of yours. Set command, if this image is meant." $values.image.repository) -}}
{{- end -}}
{{- if and $values.volumePermissions.enabled (regexMatch $pattern $values.volumePermissions.image.repository) -}}
{{- $sentences = append $sentences (printf "volumePermissions.image.repository: %s is not torchbake's volume-permissions, and has no `--owner`: leave `volumePermissions.image` out." $values.volumePermissions.image.repository) -}}
{{- end -}}
{{- end -}}
{{- uniq $sentences | toJson -}}
{{- end -}}

{{/* The value at a path, or null, as the only item of a list in JSON: dict values, path. */}}
{{- define "pytorch.valueAt" -}}
{{- $found := .values -}}
{{- range $key := splitList "." .path -}}
{{- $found = index (kindIs "map" $found | ternary $found dict) $key -}}
{{- end -}}
{{- list $found | toJson -}}
{{- end -}}

{{/* dict values, path, value. */}}
{{- define "pytorch.setAt" -}}
{{- $keys := splitList "." .path -}}
{{- $place := .values -}}
{{- range initial $keys }}{{ $place = get $place . }}{{ end -}}
{{- $_ := set $place (last $keys) .value -}}
{{- end -}}
