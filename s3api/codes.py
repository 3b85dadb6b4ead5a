"""S3's error codes with their HTTP statuses and S3's own sentences, from the S3 API reference. Pure."""

from __future__ import annotations

CODES: dict[str, tuple[int, str]] = {
    "AccessDenied": (403, "Access Denied"),
    "AccessForbidden": (
        403,
        (
            "CORSResponse: This CORS request is not allowed. This is usually because the evalution of Origin, request "
            "method / Access-Control-Request-Method or Access-Control-Request-Headers are not whitelisted by the "
            "resource's CORS spec."
        ),
    ),
    "AuthorizationHeaderMalformed": (400, "The authorization header is malformed."),
    "AuthorizationQueryParametersError": (400, "The query parameters of the signature are malformed."),
    "BadDigest": (400, "The Content-MD5 or checksum you specified did not match what we received."),
    "BadRequest": (400, "An error occurred when parsing the HTTP request."),
    "BucketAlreadyExists": (409, "The requested bucket name is not available. Select a different name and try again."),
    "BucketAlreadyOwnedByYou": (409, "The bucket that you tried to create already exists, and you own it."),
    "BucketNotEmpty": (409, "The bucket you tried to delete is not empty."),
    "EntityAlreadyExists": (409, "An entity of that name already exists."),
    "EntityTooLarge": (400, "Your proposed upload exceeds the maximum allowed object size."),
    "EntityTooSmall": (400, "Your proposed upload is smaller than the minimum allowed object size."),
    "ExpiredToken": (400, "The provided token has expired."),
    "IllegalLocationConstraintException": (400, "The location constraint is not this endpoint's region."),
    "IncompleteBody": (400, "You did not provide the number of bytes specified by the Content-Length HTTP header."),
    "InsufficientStorage": (507, "The site's disk is full: only deletions are accepted."),
    "InternalError": (500, "We encountered an internal error. Please try again."),
    "InvalidAccessKeyId": (403, "The access key ID you provided does not exist in our records."),
    "InvalidArgument": (400, "Invalid Argument"),
    "InvalidBucketName": (400, "The specified bucket is not valid."),
    "InvalidDigest": (400, "The Content-MD5 you specified is not valid."),
    "InvalidEncryptionAlgorithmError": (400, "The encryption request you specified is not valid."),
    "InvalidLocationConstraint": (400, "The specified location-constraint is not valid"),
    "InvalidPart": (
        400,
        (
            "One or more of the specified parts could not be found. The part might not have been uploaded, or the "
            "specified entity tag might not match the part's entity tag."
        ),
    ),
    "InvalidPartNumber": (416, "The requested partnumber is not satisfiable."),
    "InvalidPartOrder": (400, "The list of parts was not in ascending order. Parts must be ordered by part number."),
    "InvalidRange": (416, "The requested range is not satisfiable."),
    "InvalidRequest": (400, "The request is not valid."),
    "InvalidStorageClass": (400, "The storage class you specified is not valid."),
    "InvalidTag": (400, "The tag provided was not a valid tag."),
    "InvalidToken": (400, "The provided token is malformed or otherwise not valid."),
    "InvalidURI": (400, "Couldn't parse the specified URI."),
    "KeyTooLongError": (400, "Your key is too long."),
    "MalformedACLError": (400, "The ACL that you provided is not well formed."),
    "MalformedPolicy": (400, "Policies must be valid JSON and the first byte must be '{'"),
    "MalformedTrailerError": (400, "The request contained trailing data that was not well-formed."),
    "MalformedXML": (400, "The XML you provided was not well formed or did not validate against our published schema."),
    "MaxMessageLengthExceeded": (400, "Your request was too large."),
    "MetadataTooLarge": (400, "Your metadata headers exceed the maximum allowed metadata size."),
    "MethodNotAllowed": (405, "The specified method is not allowed against this resource."),
    "MissingContentLength": (411, "You must provide the Content-Length HTTP header."),
    "MissingSecurityHeader": (400, "Your request is missing a required header."),
    "NoSuchBucket": (404, "The specified bucket does not exist."),
    "NoSuchBucketPolicy": (404, "The bucket policy does not exist."),
    "NoSuchCORSConfiguration": (404, "The CORS configuration does not exist."),
    "NoSuchEntity": (404, "The entity does not exist."),
    "NoSuchKey": (404, "The specified key does not exist."),
    "NoSuchLifecycleConfiguration": (404, "The lifecycle configuration does not exist."),
    "NoSuchObjectLockConfiguration": (404, "The specified object does not have an ObjectLock configuration."),
    "NoSuchPublicAccessBlockConfiguration": (404, "The public access block configuration was not found."),
    "NoSuchTagSet": (404, "The TagSet does not exist."),
    "NoSuchUpload": (
        404,
        (
            "The specified multipart upload does not exist. The upload ID might be invalid, or the multipart upload "
            "might have been aborted or completed."
        ),
    ),
    "NoSuchVersion": (404, "The specified version does not exist."),
    "NoSuchWebsiteConfiguration": (404, "The specified bucket does not have a website configuration."),
    "NoSuchConfiguration": (404, "The specified configuration does not exist."),
    "NotImplemented": (501, "A header or parameter you provided implies functionality that is not implemented."),
    "NotModified": (304, "Not Modified"),
    "ObjectLockConfigurationNotFoundError": (404, "Object Lock configuration does not exist for this bucket."),
    "OperationAborted": (409, "A conflicting operation is in progress against this resource. Try again."),
    "OwnershipControlsNotFoundError": (404, "The bucket ownership controls were not found."),
    "PreconditionFailed": (412, "At least one of the preconditions you specified did not hold."),
    "QuotaExceeded": (403, "A quota does not allow this."),
    "ReplicationConfigurationNotFoundError": (404, "The replication configuration was not found."),
    "RequestHeaderSectionTooLarge": (400, "Your request line and headers exceed the maximum allowed size."),
    "RequestTimeout": (
        400,
        "Your socket connection to the server was not read from or written to within the timeout period.",
    ),
    "RequestTimeTooSkewed": (403, "The difference between the request time and the server's time is too large."),
    "ServerSideEncryptionConfigurationNotFoundError": (404, "The server side encryption configuration was not found."),
    "ServiceUnavailable": (503, "The service cannot handle the request at the moment. Please try again."),
    "SignatureDoesNotMatch": (
        403,
        (
            "The request signature we calculated does not match the signature you provided. Check your key and signing "
            "method."
        ),
    ),
    "SlowDown": (503, "Please reduce your request rate."),
    "TooManyParts": (400, "You have attempted to upload more parts than the maximum allowed."),
    "UnexpectedContent": (400, "This request contains unsupported content."),
    "XAmzContentChecksumMismatch": (400, "The provided checksum does not match what was computed."),
    "XAmzContentSHA256Mismatch": (400, "The provided 'x-amz-content-sha256' header does not match what was computed."),
}
"""Each code with its (HTTP status, sentence)."""
