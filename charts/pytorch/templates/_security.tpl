{{/* The pod's user and rights. `account: cluster` leaves users and groups to the cluster. */}}

{{- define "pytorch.podSecurity" -}}
{{- $own := .Values.securityContext -}}
{{- $all := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- if and $own.enabled .Values.containerSecurityContext.enabled -}}
{{- $_ := merge $all (dict "runAsUser" (int64 $own.runAsUser) "runAsGroup" 0) -}}
{{- end -}}
{{- if and $own.enabled .Values.podSecurityContext.enabled -}}
{{- $_ := merge $all (dict "fsGroup" (int64 $own.fsGroup) "fsGroupChangePolicy" "OnRootMismatch") -}}
{{- end -}}
{{- include "pytorch.security" (dict "root" . "chart" $all "user" .Values.podSecurityContext) -}}
{{- end -}}

{{/* The security context of each container except volume-permissions. */}}
{{- define "pytorch.containerSecurity" -}}
{{- $own := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" .Values.securityContext.readOnlyRootFilesystem -}}
{{- $_ := set $own "capabilities" (dict "drop" (list "ALL")) -}}
{{- include "pytorch.security" (dict "root" . "chart" $own "user" .Values.containerSecurityContext) -}}
{{- end -}}

{{/* The chart's security context, overridden by the user's: dict root, chart, user. */}}
{{- define "pytorch.security" -}}
{{- $user := .user.enabled | ternary (omit .user "enabled" "runAsUser" "fsGroup" "readOnlyRootFilesystem") dict -}}
{{- $all := merge (deepCopy $user) .chart -}}
{{- if eq .root.Values.account "cluster" }}{{ $all = omit $all "runAsUser" "runAsGroup" "fsGroup" "fsGroupChangePolicy" }}{{ end -}}
{{- toYaml $all -}}
{{- end -}}

{{/* True if the pod gets a token of its account. */}}
{{- define "pytorch.token" -}}
{{- if not (kindIs "invalid" .Values.automountServiceAccountToken) -}}
{{- .Values.automountServiceAccountToken -}}
{{- else if not (kindIs "invalid" .Values.serviceAccount.automountServiceAccountToken) -}}
{{- .Values.serviceAccount.automountServiceAccountToken -}}
{{- else -}}
{{- include "pytorch.serviceAccount" . | empty | not -}}
{{- end -}}
{{- end -}}
