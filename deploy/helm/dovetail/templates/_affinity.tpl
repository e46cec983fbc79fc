{{/* A term with the chart's own selector where it has none. */}}
{{- define "dovetail.selecting" -}}
{{- $term := deepCopy .term -}}
{{- if not (hasKey $term "labelSelector") -}}
{{- $_ := set $term "labelSelector" (dict "matchLabels" .selector) -}}
{{- end -}}
{{- toYaml $term -}}
{{- end -}}

{{- define "dovetail.affinity" -}}
{{- $affinity := deepCopy .affinity -}}
{{- $selector := .selector -}}
{{- range $kind := list "podAffinity" "podAntiAffinity" -}}
{{- $about := get $affinity $kind -}}
{{- if $about -}}
{{- $terms := list -}}
{{- range (get $about "requiredDuringSchedulingIgnoredDuringExecution" | default list) -}}
{{- $terms = append $terms (include "dovetail.selecting" (dict "term" . "selector" $selector) | fromYaml) -}}
{{- end -}}
{{- if $terms -}}
{{- $_ := set $about "requiredDuringSchedulingIgnoredDuringExecution" $terms -}}
{{- end -}}
{{- $wishes := list -}}
{{- range (get $about "preferredDuringSchedulingIgnoredDuringExecution" | default list) -}}
{{- $wish := deepCopy . -}}
{{- $_ := set $wish "podAffinityTerm" (include "dovetail.selecting" (dict "term" .podAffinityTerm "selector" $selector) | fromYaml) -}}
{{- $wishes = append $wishes $wish -}}
{{- end -}}
{{- if $wishes -}}
{{- $_ := set $about "preferredDuringSchedulingIgnoredDuringExecution" $wishes -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $affinity -}}
{{- end -}}
