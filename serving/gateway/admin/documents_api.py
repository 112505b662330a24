"""Routes of the documents that answers come from; all are for the operator.

GET    /api/admin/documents             {documents: [{name, size_bytes, passages}], passages, most_bytes}
PUT    /api/admin/documents?name=NAME   the file as the body: add it, or replace that of the same name
DELETE /api/admin/documents?name=NAME
POST   /api/admin/documents/reading     read all files again, after a change of the folder

A change is answered when the new index is in use; calls go on with the old one until then. A document that
cannot be read gets 422 and changes nothing. A change during another one gets 409, and one of a server whose
model answers from no documents 404.
"""

import asyncio
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from loguru import logger
from pydantic import BaseModel

from parley.core.errors import ConfigError
from parley.models.retrieval.files import MOST_BYTES
from parley.models.retrieval.library import DocumentLibrary, LibraryBusyError, StoredDocument
from parley.serving.gateway.auth.admin_auth import AdminAuth
from parley.serving.gateway.http.requests import check_origin, read_body
from parley.serving.gateway.settings import ServerTuning

PATH = "/api/admin/documents"

DocumentName = Annotated[str, Query(min_length=1, max_length=200, description="path below the folder")]


class DocumentList(BaseModel):
    """All documents, the number of passages that are searched, and the largest file that is taken."""

    documents: list[StoredDocument]
    passages: int
    most_bytes: int = MOST_BYTES


def documents_api(library: DocumentLibrary | None, operators: AdminAuth, settings: ServerTuning) -> APIRouter:
    """Return the routes.

    Args:
        library: documents of this deployment, if there are any.
        operators: checks that a request is an operator's.
        settings: of the server.
    """
    router = APIRouter(dependencies=[Depends(operators.check)])

    def present() -> DocumentLibrary:
        if library is None:
            raise HTTPException(
                404, "this server answers from no documents (bot.knowledge, thinking.passages)"
            )
        return library

    async def changed(change: Callable[[DocumentLibrary], None]) -> DocumentList:
        held = present()
        try:
            await asyncio.to_thread(change, held)
        except LibraryBusyError as error:
            raise HTTPException(409, "the documents are being read; try again in a moment") from error
        except ConfigError as error:
            raise HTTPException(422, str(error)) from error
        except FileNotFoundError as error:
            raise HTTPException(404, "there is no such document") from error
        except OSError as error:
            logger.error(f"{held.folder}: cannot change the documents: {error}")
            raise HTTPException(507, "the folder of documents cannot be written") from error
        return await listed()

    @router.get(PATH)
    async def listed() -> DocumentList:
        """Return all documents."""
        if library is None:
            return DocumentList(documents=[], passages=0)
        documents = await asyncio.to_thread(library.documents)
        return DocumentList(documents=documents, passages=len(library.index.passages))

    @router.put(PATH)
    async def put(name: DocumentName, request: Request) -> DocumentList:
        """Add a document, or replace that of the same name. The body is the file."""
        check_origin(request, allowed=settings.allowed_origins)
        present()
        content = await read_body(request, max_bytes=MOST_BYTES, within_s=settings.body_s)
        return await changed(lambda held: held.put(name, content))

    @router.delete(PATH)
    async def remove(name: DocumentName, request: Request) -> DocumentList:
        """Delete a document."""
        check_origin(request, allowed=settings.allowed_origins)
        return await changed(lambda held: held.remove(name))

    @router.post(f"{PATH}/reading")
    async def read_again(request: Request) -> DocumentList:
        """Read all files again, after a change of the folder."""
        check_origin(request, allowed=settings.allowed_origins)
        return await changed(DocumentLibrary.read_again)

    return router
