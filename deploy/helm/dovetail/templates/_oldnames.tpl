{{/*
Names that values had in older charts. Each entry: old path, new path; an empty new path means it has no successor.
A value under its old name is used unless the new name was given something else than its default.
*/}}
{{- define "dovetail.oldnames" -}}
controller.clusterName: settings.clusterName
controller.clusterEndpoint: settings.clusterEndpoint
clusterName: settings.clusterName
clusterEndpoint: settings.clusterEndpoint
aws.defaultInstanceProfile: ""
controller.replicas: replicas
controller.nodeSelector: nodeSelector
controller.tolerations: tolerations
controller.affinity: affinity
controller.batchMaxDuration: settings.batchMaxDuration
controller.batchIdleDuration: settings.batchIdleDuration
webhook: ""
settings.aws.clusterName: settings.clusterName
settings.aws.clusterEndpoint: settings.clusterEndpoint
settings.aws.defaultInstanceProfile: ""
settings.aws.interruptionQueueName: settings.interruptionQueue
settings.aws.assumeRoleARN: ""
settings.aws.assumeRoleDuration: ""
settings.assumeRoleARN: ""
settings.assumeRoleDuration: ""
settings.aws.isolatedVPC: settings.isolatedVPC
settings.aws.vmMemoryOverheadPercent: settings.vmMemoryOverheadPercent
settings.aws.clusterCABundle: settings.clusterCABundle
settings.aws.reservedENIs: settings.reservedENIs
settings.aws.enablePodENI: ""
settings.aws.enableENILimitedPodDensity: ""
settings.aws.nodeNameConvention: ""
settings.aws.tags: ""
settings.featureGates.driftEnabled: ""
settings.featureGates.drift: ""
controller.outputPaths: logOutputPaths
controller.errorOutputPaths: logErrorOutputPaths
controller.logLevel: logLevel
controller.logEncoding: ""
logEncoding: ""
logConfig.enabled: ""
logConfig.outputPaths: logOutputPaths
logConfig.errorOutputPaths: logErrorOutputPaths
logConfig.logEncoding: ""
logConfig.logLevel.global: logLevel
logConfig.logLevel.controller: logLevel
logConfig.logLevel.webhook: ""
extraObjects: ""
{{- end -}}

{{/* What stands at a dotted path of the values, as {"value": …}; nothing when there is nothing. */}}
{{- define "dovetail.at" -}}
{{- $here := .values -}}
{{- $found := true -}}
{{- range splitList "." .path -}}
{{- if and $found (kindIs "map" $here) (hasKey $here .) -}}
{{- $here = get $here . -}}
{{- else -}}
{{- $found = false -}}
{{- end -}}
{{- end -}}
{{- if and $found (not (kindIs "invalid" $here)) -}}
{{- dict "value" $here | toJson -}}
{{- end -}}
{{- end -}}

{{/* The values that came under old names, by their new paths. */}}
{{- define "dovetail.renamed" -}}
{{- $found := dict -}}
{{- range $old, $new := include "dovetail.oldnames" . | fromYaml -}}
{{- $at := include "dovetail.at" (dict "values" $.Values "path" $old) -}}
{{- if and $at $new -}}
{{- $_ := set $found $new (get (fromJson $at) "value") -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* One line for each old name in use. */}}
{{- define "dovetail.warnings" -}}
{{- range $old, $new := include "dovetail.oldnames" . | fromYaml -}}
{{- if include "dovetail.at" (dict "values" $.Values "path" $old) }}
{{- if $new }}
WARNING: the value {{ $old }} is now called {{ $new }}; it is used as that. Please rename it.
{{- else }}
WARNING: the value {{ $old }} has no meaning any more; please remove it.
{{- end }}
{{- end -}}
{{- end -}}
{{- if kindIs "string" .Values.controller.image }}
WARNING: the value controller.image is now controller.image.repository, tag and digest; the text is used as it is. Please rename it.
{{- end -}}
{{- end -}}

{{- define "dovetail.settings" -}}
{{- $settings := deepCopy .Values.settings -}}
{{- range $path, $value := include "dovetail.renamed" . | fromYaml -}}
{{- if hasPrefix "settings." $path -}}
{{- $_ := set $settings (trimPrefix "settings." $path) $value -}}
{{- end -}}
{{- end -}}
{{- if and (eq .Values.provider "aws") (not $settings.clusterName) -}}
{{- fail "settings.clusterName is empty: give the name of the cluster, as in --set settings.clusterName=my-cluster" -}}
{{- end -}}
{{- if include "dovetail.zonal.inside" . -}}
{{- $_ := set $settings "enableZonalShift" true -}}
{{- end -}}
{{- toYaml (omit $settings "aws") -}}
{{- end -}}

{{- define "dovetail.logs" -}}
{{- $renamed := include "dovetail.renamed" . | fromYaml -}}
level: {{ get $renamed "logLevel" | default .Values.logLevel | quote }}
paths: {{ get $renamed "logOutputPaths" | default .Values.logOutputPaths | toJson }}
errorPaths: {{ get $renamed "logErrorOutputPaths" | default .Values.logErrorOutputPaths | toJson }}
{{- end -}}

{{/* A value that may have come under an old name: dict "root" . "path" "replicas". */}}
{{- define "dovetail.value" -}}
{{- $renamed := include "dovetail.renamed" .root | fromYaml -}}
{{- if hasKey $renamed .path -}}
{{- dict "value" (get $renamed .path) | toJson -}}
{{- else -}}
{{- dict "value" (get .root.Values .path) | toJson -}}
{{- end -}}
{{- end -}}
