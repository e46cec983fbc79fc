{{/* The name of a setting's variable: clusterName is CLUSTER_NAME. Abbreviations need a word of their own. */}}
{{- define "dovetail.variable" -}}
{{- $spelled := dict "reservedENIs" "RESERVED_ENIS" "isolatedVPC" "ISOLATED_VPC" "clusterCABundle" "CLUSTER_CA_BUNDLE" "ignoreDRARequests" "IGNORE_DRA_REQUESTS" "kubeClientQPS" "KUBE_CLIENT_QPS" -}}
{{- get $spelled . | default (snakecase . | upper) -}}
{{- end -}}

{{/* Gates as a comma list: NodeRepair=false,… ; a name's first letter is a capital. */}}
{{- define "dovetail.gates" -}}
{{- $gates := list -}}
{{- range $name := keys . | sortAlpha -}}
{{- $gates = append $gates (printf "%s%s=%t" (substr 0 1 $name | upper) (substr 1 -1 $name) (get $ $name)) -}}
{{- end -}}
{{- join "," $gates -}}
{{- end -}}

{{/* Settings after old names have found their places; see _oldnames.tpl. */}}
{{- define "dovetail.environment" -}}
{{- $logs := include "dovetail.logs" . | fromYaml -}}
- name: KUBERNETES_MIN_VERSION
  value: "1.19.0-0"
- name: KARPENTER_SERVICE
  value: {{ include "dovetail.fullname" . }}
- name: LOG_LEVEL
  value: {{ $logs.level | quote }}
- name: LOG_OUTPUT_PATHS
  value: {{ join "," $logs.paths | quote }}
- name: LOG_ERROR_OUTPUT_PATHS
  value: {{ join "," $logs.errorPaths | quote }}
- name: METRICS_PORT
  value: {{ .Values.controller.metrics.port | quote }}
- name: HEALTH_PROBE_PORT
  value: {{ .Values.controller.healthProbe.port | quote }}
- name: SYSTEM_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: CPU_REQUESTS
  valueFrom:
    resourceFieldRef:
      containerName: {{ .Values.controller.containerName }}
      divisor: 1m
      resource: requests.cpu
- name: MEMORY_LIMIT
  valueFrom:
    resourceFieldRef:
      containerName: {{ .Values.controller.containerName }}
      divisor: "0"
      resource: limits.memory
{{ include "dovetail.settings.environment" . }}
{{- if include "dovetail.zonal.inside" . }}
{{ include "dovetail.zonal.environment" . }}
{{- else if not (include "dovetail.zonal.granted" .) }}
- name: ZONAL_SHIFT_ON_DISABLE
  value: leave
{{- end }}
{{- with .Values.controller.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The settings themselves, which everybody who plans must be told alike. */}}
{{- define "dovetail.settings.environment" -}}
{{- $settings := include "dovetail.settings" . | fromYaml -}}
- name: FEATURE_GATES
  value: {{ include "dovetail.gates" (omit $settings.featureGates "drift" "driftEnabled") | quote }}
{{- if eq .Values.provider "aws" }}
- name: AWS_FEATURE_GATES
  value: {{ include "dovetail.gates" $settings.awsFeatureGates | quote }}
{{- end }}
{{- range $name := keys $settings | sortAlpha }}
{{- $value := get $settings $name }}
{{- if not (or (has $name (list "aws" "featureGates" "awsFeatureGates")) (kindIs "invalid" $value) (eq (toString $value) "")) }}
- name: {{ include "dovetail.variable" $name }}
  value: {{ tpl (kindIs "map" $value | ternary (toJson $value) (toString $value)) $ | quote }}
{{- end }}
{{- end }}
{{- end -}}
