"""The API server's HTTP: requests, routes, replies, watch streams.

server       the listening server
routes       what a request's path and query name
requests     from a request to its reply
bodies       request bodies as objects and patches
replies      objects, lists and tables as replies
streams      watches over HTTP
documents    version, discovery and OpenAPI, as the server serves them
openapi      OpenAPI v3 documents; openapi_v2 has the old form
protobuf     Kubernetes' protobuf as JSON
"""
