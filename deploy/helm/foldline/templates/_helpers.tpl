{{- define "foldline.name" -}}
{{- if contains "foldline" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-foldline" (.Release.Name | trunc 41 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "foldline.selector" -}}
app.kubernetes.io/name: foldline
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "foldline.labels" -}}
{{ include "foldline.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "foldline.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* What every pod has, for .component. */}}
{{- define "foldline.podMetadata" -}}
labels:
  {{- include "foldline.labels" . | nindent 2 }}
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .root.Values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "foldline.podSpec" -}}
# Nothing here talks to Kubernetes.
automountServiceAccountToken: false
# A Service named foldline would become FOLDLINE_PORT and the like, and unknown settings are refused.
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: tmp
    emptyDir: {}
  {{- with .Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* What every container has, for .root and the .secrets that it reads. */}}
{{- define "foldline.container" -}}
image: {{ include "foldline.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  {{- toYaml .root.Values.securityContext | nindent 2 }}
volumeMounts:
  - name: tmp
    mountPath: /tmp
  {{- with .root.Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env:
  {{- range $name, $key := .secrets }}
  - name: {{ $name }}
    valueFrom:
      secretKeyRef:
        name: {{ $.root.Values.existingSecret }}
        key: {{ $key }}
        {{- if ne $name "FOLDLINE_DATABASE_URL" }}
        optional: true
        {{- end }}
  {{- end }}
  {{- range $name, $value := .root.Values.settings }}
  - name: FOLDLINE_{{ $name }}
    value: {{ $value | toString | quote }}
  {{- end }}
  {{- range $name, $value := .settings }}
  - name: FOLDLINE_{{ $name }}
    value: {{ $value | quote }}
  {{- end }}
  {{- with .root.Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
