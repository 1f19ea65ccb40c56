{{/* The source of the job's files: a ConfigMap, else files, else a git repository. */}}

{{- define "pytorch.source" -}}
{{- if .Values.configMap -}}configMap
{{- else if include "pytorch.files" . | fromJsonArray -}}files
{{- else if .Values.cloneFilesFromGit.enabled -}}git
{{- end -}}
{{- end -}}

{{/* The files of the values and of the folder, by path, each with a unique key, and text or base64. */}}
{{- define "pytorch.files" -}}
{{- $texts := deepCopy .Values.files -}}
{{- $binaries := deepCopy .Values.binaryFiles -}}
{{- range $path, $bytes := .Files.Glob "files/**" -}}
{{- $name := trimPrefix "files/" $path -}}
{{- $content := toString $bytes -}}
{{- if not (or (hasKey $texts $name) (hasKey $binaries $name)) -}}
{{- /* What is not UTF-8 reads as U+FFFD. */ -}}
{{- if regexMatch "\\x{FFFD}" $content -}}
{{- $_ := set $binaries $name (b64enc $content) -}}
{{- else -}}
{{- $_ := set $texts $name $content -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $all := list -}}
{{- $taken := list -}}
{{- range $path := concat (keys $texts) (keys $binaries) | uniq | sortAlpha -}}
{{- $key := regexReplaceAll "[^-._a-zA-Z0-9]" $path "_" | trunc -240 -}}
{{- if has $key $taken }}{{ $key = printf "%s-%d" $key (len $taken) }}{{ end -}}
{{- $taken = append $taken $key -}}
{{- $file := dict "path" $path "key" $key -}}
{{- if hasKey $texts $path -}}
{{- $_ := set $file "text" (get $texts $path) -}}
{{- else -}}
{{- $_ := set $file "binary" (get $binaries $path) -}}
{{- end -}}
{{- $all = append $all $file -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{/* True if git of a separate image clones the repository. */}}
{{- define "pytorch.ownGit" -}}
{{- if and .Values.git.repository (eq (include "pytorch.source" .) "git") -}}yes{{- end -}}
{{- end -}}

{{- define "pytorch.sshEnv" -}}
{{- if .Values.cloneFilesFromGit.sshSecret }}
- name: GIT_SSH_COMMAND
  value: ssh -i /etc/git-ssh/ssh-privatekey -o IdentitiesOnly=yes -o UserKnownHostsFile=/etc/git-ssh/known_hosts -o StrictHostKeyChecking=yes
{{- end }}
{{- end -}}

{{- define "pytorch.sshMount" -}}
{{- if .Values.cloneFilesFromGit.sshSecret }}
- name: git-ssh
  mountPath: /etc/git-ssh
  readOnly: true
{{- end }}
{{- end -}}

{{- define "pytorch.gitContainer" -}}
- name: git
  image: {{ include "pytorch.image" (dict "image" .Values.git "root" .) }}
  imagePullPolicy: {{ .Values.git.pullPolicy }}
  # A subfolder, as git refuses a folder of another user, such as a volume's root.
  command:
    - sh
    - -ec
    - git clone --quiet -- "$GIT_REPOSITORY" /clone/job && cd /clone/job && git checkout --quiet "$GIT_REVISION" --
  env:
    - name: HOME
      value: /tmp
    - name: GIT_TERMINAL_PROMPT
      value: "0"
    - name: GIT_REPOSITORY
      value: {{ include "pytorch.literal" .Values.cloneFilesFromGit.repository | quote }}
    - name: GIT_REVISION
      value: {{ include "pytorch.literal" (include "pytorch.tag" .Values.cloneFilesFromGit.revision) | quote }}
    {{- with include "pytorch.sshEnv" . | trim }}
    {{- . | nindent 4 }}
    {{- end }}
  securityContext:
    {{- include "pytorch.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - name: tmp
      mountPath: /tmp
    - name: job-files
      mountPath: /clone
    {{- with include "pytorch.sshMount" . | trim }}
    {{- . | nindent 4 }}
    {{- end }}
{{- end -}}
