"""Dense tasks as programs that run without torch: their export, and what runs inside a function."""

from typing import TYPE_CHECKING

from dorylus.lazy import lazy_names

if TYPE_CHECKING:
    from dorylus.functions.deploy.access import (
        AwsAccess,
        aws_access,
        code_of,
        cure,
        error_text,
        is_about_credentials,
        local_access,
        status_of,
    )
    from dorylus.functions.deploy.aws import Deployment
    from dorylus.functions.deploy.config import DEFAULT_NAME, FunctionConfig, on_aws, on_this_machine
    from dorylus.functions.deploy.local import LocalFunctions
    from dorylus.functions.deploy.package import build, needs_download
    from dorylus.functions.deploy.plan import (
        ApiCall,
        DesiredState,
        Found,
        Unbuilt,
        deploy_calls,
        destroy_calls,
        find_calls,
        format_plan,
    )
    from dorylus.functions.export import Exports
    from dorylus.functions.invocation import CONTENT, MAX_TEXT, TOKEN_VARIABLE, DirectTask, Invocation, Ports
    from dorylus.functions.payload import CSR, PRECISIONS, ROW_ROLES, Form, forms, narrow, widen
    from dorylus.functions.program import (
        ArrayRole,
        ExportedProgram,
        ProgramError,
        called,
        is_cut_by_row,
        is_summed,
        role,
        which,
    )
    from dorylus.functions.program_cache import ProgramCache
    from dorylus.functions.pure import signature
    from dorylus.functions.worker import receive, send

__all__ = [
    "CONTENT",
    "CSR",
    "DEFAULT_NAME",
    "MAX_TEXT",
    "PRECISIONS",
    "ROW_ROLES",
    "TOKEN_VARIABLE",
    "ApiCall",
    "ArrayRole",
    "AwsAccess",
    "Deployment",
    "DesiredState",
    "DirectTask",
    "ExportedProgram",
    "Exports",
    "Form",
    "Found",
    "FunctionConfig",
    "Invocation",
    "LocalFunctions",
    "Ports",
    "ProgramCache",
    "ProgramError",
    "Unbuilt",
    "aws_access",
    "build",
    "called",
    "code_of",
    "cure",
    "deploy_calls",
    "destroy_calls",
    "error_text",
    "find_calls",
    "format_plan",
    "forms",
    "is_about_credentials",
    "is_cut_by_row",
    "is_summed",
    "local_access",
    "narrow",
    "needs_download",
    "on_aws",
    "on_this_machine",
    "receive",
    "role",
    "send",
    "signature",
    "status_of",
    "which",
    "widen",
]

__getattr__ = lazy_names(
    __name__,
    {
        "deploy.access": "AwsAccess aws_access code_of cure error_text is_about_credentials local_access status_of",
        "deploy.aws": "Deployment",
        "deploy.config": "DEFAULT_NAME FunctionConfig on_aws on_this_machine",
        "deploy.local": "LocalFunctions",
        "deploy.package": "build needs_download",
        "deploy.plan": "ApiCall DesiredState Found Unbuilt deploy_calls destroy_calls find_calls format_plan",
        "export": "Exports",
        "invocation": "CONTENT DirectTask Invocation MAX_TEXT Ports TOKEN_VARIABLE",
        "payload": "CSR Form PRECISIONS ROW_ROLES forms narrow widen",
        "program": "ArrayRole ExportedProgram ProgramError called is_cut_by_row is_summed role which",
        "program_cache": "ProgramCache",
        "pure": "signature",
        "worker": "receive send",
    },
)
