{{/* The folder of a decision log in files: what comes after file: in settings.decisionLog; empty without one. */}}
{{- define "dovetail.decisionLog.folder" -}}
{{- $places := tpl (toString (.Values.settings.decisionLog | default "")) . -}}
{{- regexFind "file:/[^,]*" $places | trimPrefix "file:" | trim -}}
{{- end -}}
