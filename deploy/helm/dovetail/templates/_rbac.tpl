{{/* The cluster role of this name is given to the controller's account. */}}
{{- define "dovetail.boundTo" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .name }}
  labels:
    {{- include "dovetail.labels" .root | nindent 4 }}
  {{- include "dovetail.annotations" .root | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "dovetail.serviceAccount" .root }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{- define "dovetail.roleBoundTo" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "dovetail.labels" .root | nindent 4 }}
  {{- include "dovetail.annotations" .root | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "dovetail.serviceAccount" .root }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/* Not empty where spend limits are followed. */}}
{{- define "dovetail.spendLimits" -}}
{{- $settings := include "dovetail.settings" . | fromYaml -}}
{{- if eq (toString $settings.spendLimits) "true" }}true{{ end -}}
{{- end }}

{{/* Not empty where commitments are shown or followed. */}}
{{- define "dovetail.commitments" -}}
{{- $settings := include "dovetail.settings" . | fromYaml -}}
{{- if has (toString $settings.commitments) (list "Show" "Follow") }}true{{ end -}}
{{- end }}
