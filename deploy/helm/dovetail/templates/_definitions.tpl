{{/* The definition of a kind of our own. One that goes takes its objects with it, and with them what is known of
shifts in force: so it stays when the chart goes. */}}
{{- define "dovetail.own.definition" -}}
{{- $definition := .root.Files.Get .file | fromYaml -}}
{{ toYaml (merge (dict "metadata" (dict "annotations" (dict "helm.sh/resource-policy" "keep"))) $definition) }}
{{- end -}}
