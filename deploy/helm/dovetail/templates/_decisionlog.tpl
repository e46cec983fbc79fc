{{/* The folder of a recording in files: what comes after file: in settings.recording; empty without one. */}}
{{- define "dovetail.recording.folder" -}}
{{- $place := tpl (toString (.Values.settings.recording | default "")) . -}}
{{- regexFind "^file:/.*" $place | trimPrefix "file:" | trim -}}
{{- end -}}
{{/* The folder of a decision log in files: what comes after file: in settings.decisionLog; empty without one. */}}
{{- define "dovetail.decisionLog.folder" -}}
{{- $places := tpl (toString (.Values.settings.decisionLog | default "")) . -}}
{{- regexFind "file:/[^,]*" $places | trimPrefix "file:" | trim -}}
{{- end -}}
