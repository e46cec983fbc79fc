{{/* Zonal shift: whether it is followed, by whom, and the variables that say how. */}}

{{- define "dovetail.zonal.inside" -}}
{{- if and .Values.controller.enabled (or .Values.zonalShift.enabled (eq (toString .Values.settings.enableZonalShift) "true")) }}true{{ end -}}
{{- end -}}

{{- define "dovetail.zonal.on" -}}
{{- if or (include "dovetail.zonal.inside" .) .Values.zonalShift.standalone.enabled }}true{{ end -}}
{{- end -}}

{{/* Permissions outlive the switch, for shifts in force are ended after it was turned. Where ZoneShifts are not even
served there are none, and no permissions either. */}}
{{- define "dovetail.zonal.granted" -}}
{{- $served := .Capabilities.APIVersions.Has "dovetail.sh/v1alpha1" -}}
{{- if or (include "dovetail.zonal.inside" .) (and $served (eq .Values.zonalShift.onDisable "restore")) }}true{{ end -}}
{{- end -}}

{{- define "dovetail.zonal.map" -}}
{{- printf "%s-zonal-shift" (include "dovetail.fullname" . | trunc 48 | trimSuffix "-") -}}
{{- end -}}

{{- define "dovetail.zonal.variable" -}}
{{- $spelled := dict "doNotDisrupt" "ENABLE_DO_NOT_DISRUPT" -}}
{{- get $spelled . | default (printf "ZONAL_SHIFT_%s" (snakecase . | upper)) -}}
{{- end -}}

{{/* Values that are settings, and those that the chart itself reads; all others are fields of the policy. */}}
{{- define "dovetail.zonal.settings" -}}
[doNotDisrupt, endpointUrl, eventsCaFile, eventsTokenFile, httpsPort, mode, onDisable, queue, store, table, topicArn]
{{- end -}}

{{- define "dovetail.zonal.own" -}}
[enabled, crd, tlsSecret, networkPolicy, standalone, policy, dryRun]
{{- end -}}

{{/* The fields of the policy that were chosen, by their keys. */}}
{{- define "dovetail.zonal.policy" -}}
{{- $others := concat (include "dovetail.zonal.settings" . | fromYamlArray) (include "dovetail.zonal.own" . | fromYamlArray) -}}
{{- $found := dict -}}
{{- range $name, $value := omit .Values.zonalShift "" -}}
{{- $text := toString $value -}}
{{- if not (or (has $name $others) (kindIs "invalid" $value) (eq $text "")) -}}
{{- $_ := set $found (kebabcase $name) (tpl $text $) -}}
{{- end -}}
{{- end -}}
{{- if $found }}{{ toYaml $found }}{{ end -}}
{{- end -}}

{{/* Fields that are read at the start alone: a pod with another checksum is another pod. */}}
{{- define "dovetail.zonal.restart" -}}
{{- $policy := include "dovetail.zonal.policy" . | fromYaml -}}
{{- $stale := pick $policy "allow-signature-v1" "prescale" "rebalance" "rehearsal" "sns-auto-subscribe" "sns-ca-file" -}}
{{- if $stale }}checksum/zonal-shift-policy: {{ toJson $stale | sha256sum }}{{ end -}}
{{- end -}}

{{- define "dovetail.zonal.environment" -}}
{{- $settings := include "dovetail.zonal.settings" . | fromYamlArray -}}
- name: ZONAL_SHIFT_CONFIG_MAP
  value: {{ .Release.Namespace }}/{{ include "dovetail.zonal.map" . }}
{{- range $name, $key := dict "POLICY" "policy" "DRY_RUN" "dry-run" }}
# The first value; later ones are heard of by watching.
- name: ZONAL_SHIFT_{{ $name }}
  valueFrom:
    configMapKeyRef:
      name: {{ include "dovetail.zonal.map" $ }}
      key: {{ $key }}
      optional: true
{{- end }}
{{- range $name := keys .Values.zonalShift | sortAlpha }}
{{- $value := get $.Values.zonalShift $name }}
{{- $text := kindIs "slice" $value | ternary (join "," $value) (toString $value) }}
{{- if and (has $name $settings) (not (kindIs "invalid" $value)) (ne $text "") }}
- name: {{ include "dovetail.zonal.variable" $name }}
  value: {{ tpl $text $ | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Rules for ZoneShifts, and for the pools that stand in for those of EKS Auto Mode. */}}
{{- define "dovetail.zonal.rules" -}}
- apiGroups: [dovetail.sh]
  resources: [zoneshifts, zoneshifts/status]
  verbs: [get, list, watch, create, patch, update, delete]
{{- end -}}

{{- define "dovetail.zonal.cloneRules" -}}
- apiGroups: [karpenter.sh]
  resources: [nodepools]
  verbs: [create, delete]
{{- end -}}

{{/* Room bought beforehand is kept by CapacityBuffers. */}}
{{- define "dovetail.zonal.prescaleRules" -}}
- apiGroups: [autoscaling.x-k8s.io]
  resources: [capacitybuffers]
  verbs: [create, patch, delete]
{{- end -}}

{{- define "dovetail.zonal.mapRules" -}}
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [{{ include "dovetail.zonal.map" . }}]
  verbs: [get, list, watch]
{{- end -}}

{{/* Whether there is an HTTPS endpoint: for topics of SNS, or for senders that prove who they are. */}}
{{- define "dovetail.zonal.tls" -}}
{{- if or .Values.zonalShift.topicArn .Values.zonalShift.eventsTokenFile .Values.zonalShift.eventsCaFile -}}
{{- if not .Values.zonalShift.tlsSecret -}}
{{- fail "zonalShift.tlsSecret is empty and messages shall come over HTTPS: name a Secret of type kubernetes.io/tls, or use zonalShift.queue" -}}
{{- end -}}
true
{{- end -}}
{{- end -}}

{{/* The HTTPS endpoint's port and certificate, where there is one. */}}
{{- define "dovetail.zonal.port" -}}
- name: https-sns
  containerPort: {{ .Values.zonalShift.httpsPort }}
  protocol: TCP
{{- end -}}

{{- define "dovetail.zonal.mount" -}}
- name: zonal-shift-tls
  mountPath: /var/run/dovetail/tls
  readOnly: true
{{- end -}}

{{- define "dovetail.zonal.volume" -}}
- name: zonal-shift-tls
  secret:
    secretName: {{ .Values.zonalShift.tlsSecret }}
{{- end -}}

{{- define "dovetail.zonal.servicePort" -}}
- name: https-sns
  port: 443
  targetPort: https-sns
  protocol: TCP
{{- end -}}

{{/* Who may reach the endpoint; called with root, meta, selector and the metrics port. */}}
{{- define "dovetail.zonal.networkPolicy" }}
{{- if and .root.Values.zonalShift.networkPolicy.enabled (include "dovetail.zonal.tls" .root) }}
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
    {{- if not .root.Values.networkPolicy.enabled }}
    - ports:
        {{- range .open }}
        - port: {{ . }}
          protocol: TCP
        {{- end }}
    {{- end }}
    - ports:
        - port: {{ .root.Values.zonalShift.httpsPort }}
          protocol: TCP
      {{- with .root.Values.zonalShift.networkPolicy.from }}
      from:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}
{{- end -}}
