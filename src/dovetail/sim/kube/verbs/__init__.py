"""The verbs of the API server, over the store.

handler              every verb of a resource
writes               create and update
patch                PATCH and server-side apply
field_managers       managedFields
deletes              delete and deletecollection
list_watch           list and watch
subresources         status, scale, binding, eviction and others
admission            defaults, mutation and validation of built-in and custom objects
admission_policies   ValidatingAdmissionPolicies
conversion           versions of custom objects, and the expiry of Events
namespaces           what a namespace holds from the start, and its termination
garbage_collection   objects whose owners are gone
"""
