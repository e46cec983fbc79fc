{{/*
What the optional components share. Each is called with dict "root" $ "part" "router" "values" .Values.router:
its objects are named after the release and the part, and its pods answer to no selector of the controller.
*/}}
{{- define "dovetail.part.name" -}}
{{- printf "%s-%s" (include "dovetail.fullname" .root | trunc 48 | trimSuffix "-") .part -}}
{{- end -}}

{{- define "dovetail.part.selector" -}}
app.kubernetes.io/name: {{ printf "%s-%s" (include "dovetail.name" .root | trunc 48 | trimSuffix "-") .part }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end -}}

{{- define "dovetail.part.labels" -}}
{{- $labels := include "dovetail.labels" .root | fromYaml -}}
{{- toYaml (merge (include "dovetail.part.selector" . | fromYaml) (dict "app.kubernetes.io/component" .part) $labels) -}}
{{- end -}}

{{/* Metadata of an object in the release's namespace; "called" names it otherwise, "annotations" adds some. */}}
{{- define "dovetail.part.meta" -}}
name: {{ .called | default (include "dovetail.part.name" .) }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "dovetail.part.labels" . | nindent 2 }}
{{- with merge (deepCopy (.annotations | default dict)) .root.Values.additionalAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "dovetail.part.account" -}}
{{- $account := .values.serviceAccount -}}
{{- $account.create | ternary (default (include "dovetail.part.name" .) $account.name) (default "default" $account.name) -}}
{{- end -}}

{{- define "dovetail.part.serviceAccount" }}
{{- if .values.serviceAccount.create }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "dovetail.part.meta" (merge (dict "called" (include "dovetail.part.account" .) "annotations" .values.serviceAccount.annotations) .) | nindent 2 }}
automountServiceAccountToken: false
{{- end }}
{{- end -}}

{{- define "dovetail.part.budget" }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "dovetail.part.meta" . | nindent 2 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "dovetail.part.selector" . | nindent 6 }}
{{- end -}}

{{- define "dovetail.part.monitor" }}
{{- $monitor := .root.Values.serviceMonitor }}
{{- if and $monitor.enabled (.root.Capabilities.APIVersions.Has "monitoring.coreos.com/v1") }}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  {{- $meta := include "dovetail.part.meta" . | fromYaml }}
  {{- toYaml (merge (dict "labels" (merge (deepCopy $monitor.additionalLabels) $meta.labels)) $meta) | nindent 2 }}
spec:
  {{- include "dovetail.monitored" (dict "root" .root "selector" (include "dovetail.part.selector" . | fromYaml)) | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The roles of this name, bound to the part's account. "rules" are those of a ClusterRole. */}}
{{- define "dovetail.part.clusterRole" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  {{- toYaml (omit (include "dovetail.part.meta" . | fromYaml) "namespace") | nindent 2 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  {{- toYaml (omit (include "dovetail.part.meta" . | fromYaml) "namespace") | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ include "dovetail.part.name" . }}
subjects:
  - kind: ServiceAccount
    name: {{ include "dovetail.part.account" . }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{- define "dovetail.part.role" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- include "dovetail.part.meta" . | nindent 2 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "dovetail.part.meta" . | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ include "dovetail.part.name" . }}
subjects:
  - kind: ServiceAccount
    name: {{ include "dovetail.part.account" . }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{/* Metadata and the first half of a pod's spec: who it is and where it may run. "apart" are topology keys. */}}
{{- define "dovetail.part.pod" -}}
metadata:
  labels:
    {{- toYaml (merge (include "dovetail.part.selector" . | fromYaml) .values.podLabels) | nindent 4 }}
  {{- with merge (deepCopy .values.podAnnotations) (.noted | default dict) }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  serviceAccountName: {{ include "dovetail.part.account" . }}
  automountServiceAccountToken: {{ .token }}
  {{- with .root.Values.podSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- with .values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .affinity }}
  affinity:
    {{- include "dovetail.affinity" (dict "affinity" . "selector" (include "dovetail.part.selector" $ | fromYaml)) | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* What every container of ours has. */}}
{{- define "dovetail.part.container" -}}
name: {{ .part }}
image: {{ include "dovetail.image" .root | quote }}
imagePullPolicy: {{ .root.Values.imagePullPolicy }}
securityContext:
  privileged: false
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  capabilities:
    drop: [ALL]
{{- with .values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "dovetail.part.probe" -}}
initialDelaySeconds: {{ .after }}
timeoutSeconds: 30
httpGet:
  path: {{ .path }}
  port: {{ .port }}
{{- end -}}

{{/* The spec of a ServiceMonitor for the service with these labels; called with root and selector. */}}
{{- define "dovetail.monitored" -}}
{{- $monitor := .root.Values.serviceMonitor -}}
{{- $endpoint := dict "port" "http-metrics" "path" "/metrics" -}}
{{- with $monitor.relabelings }}{{ $_ := set $endpoint "relabelings" . }}{{ end -}}
{{- with $monitor.metricRelabelings }}{{ $_ := set $endpoint "metricRelabelings" . }}{{ end -}}
namespaceSelector:
  matchNames:
    - {{ .root.Release.Namespace }}
selector:
  matchLabels:
    {{- toYaml .selector | nindent 4 }}
endpoints:
  - {{- toYaml (merge (deepCopy $monitor.endpointConfig) $endpoint) | nindent 4 }}
{{- if not (kindIs "invalid" $monitor.sampleLimit) }}
sampleLimit: {{ $monitor.sampleLimit }}
{{- end }}
{{- end -}}

{{/* Only the metrics port is open; called with root, meta, selector and port. */}}
{{- define "dovetail.metricsPolicy" }}
{{- if .root.Values.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- .meta | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- .selector | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
    - ports:
        - port: {{ .port }}
          protocol: TCP
      {{- with .root.Values.networkPolicy.metricsFrom }}
      from:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}
{{- end -}}
