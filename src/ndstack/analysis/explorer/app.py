"""The web application: models by identifier, one answer per string, and only the files of the page."""

import ipaddress
import secrets
from typing import Annotated

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from ndstack.analysis.explorer.answer import Json
from ndstack.analysis.explorer.catalogue import Catalogue, UnknownModelError
from ndstack.analysis.explorer.page_files import TYPES, asset, saved_page
from ndstack.analysis.explorer.requests import SupersededError, TooManyError
from ndstack.analysis.explorer.security import SecurityMiddleware
from ndstack.errors import NdstackError

LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")

Identifier = Annotated[str, Field(max_length=200)]
PageName = Annotated[str, Field(min_length=1, max_length=64)]
"""The identifier of a page, with which its newest request supersedes earlier ones."""
RequestNumber = Annotated[int, Field(ge=1, lt=2**53)]
"""The number that a page gives to a request, since requests may arrive in another order."""
Number = Annotated[int, Field(ge=0, le=10_000)]


class _Question(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Look(_Question):
    """A request to let a model read a string."""

    model: Identifier
    text: Annotated[str, Field(max_length=8000)]
    page: PageName | None = None
    number: RequestNumber | None = None


class Stop(_Question):
    """A request to end all requests of a page, up to a number if one is given."""

    page: PageName
    number: RequestNumber | None = None


class Save(Look):
    """A request to save a page, with what it shows first."""

    t: Number = 0
    stack: Number = 0
    run: Number = 0


class Sample(_Question):
    """A request to sample a string for a model."""

    model: Identifier
    length: Number | None = None
    seed: Annotated[int, Field(ge=0, lt=2**53)] | None = None


def make_app(catalogue: Catalogue, host: str | None = None) -> FastAPI:
    """Return the application.

    Args:
        catalogue: the models.
        host: a host name, besides those of the loopback interface, that requests may use; `*` for any.
    """
    app = FastAPI(title="ndstack explore", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=allowed_hosts(host), www_redirect=False)
    app.add_middleware(SecurityMiddleware)
    _add_pages(app)
    _add_questions(app, catalogue)
    _add_errors(app)
    return app


def allowed_hosts(host: str | None) -> list[str]:
    """Return the host names that requests may use; any name, if the server listens on every address."""
    if host is None:
        return list(LOOPBACK)
    try:
        if ipaddress.ip_address(host.strip("[]")).is_unspecified:
            return ["*"]
    except ValueError:
        pass
    return [*LOOPBACK, host]


def _add_pages(app: FastAPI) -> None:
    @app.get("/")
    def index() -> HTMLResponse:
        return HTMLResponse(asset("index.html"))

    @app.get("/{name}")
    def file(name: str) -> Response:
        if name not in TYPES:
            raise HTTPException(404)
        return Response(asset(name), media_type=TYPES[name])


def _add_questions(app: FastAPI, catalogue: Catalogue) -> None:
    @app.get("/api/models")
    def models() -> list[str]:
        return catalogue.identifiers()

    @app.get("/api/tour")
    def tour() -> Json:
        return catalogue.tour()

    @app.get("/api/models/{model}")
    def model(model: str) -> Json:
        return catalogue.describe(model)

    @app.post("/api/look")
    def look(question: Look) -> JSONResponse:
        return JSONResponse(catalogue.look(question.model, question.text, question.page, question.number))

    @app.post("/api/stop")
    def stop(question: Stop) -> dict[str, bool]:
        catalogue.requests.stop(question.page, question.number)
        return {"stopped": True}

    @app.post("/api/sample")
    def sample(question: Sample) -> dict[str, str]:
        seed = secrets.randbits(32) if question.seed is None else question.seed
        return {"text": catalogue.sample(question.model, question.length, seed)}

    @app.post("/api/save")
    def save(question: Save) -> HTMLResponse:
        place = {"t": question.t, "stack": question.stack, "run": question.run}
        page = saved_page(catalogue.look(question.model, question.text), place)
        return HTMLResponse(page, headers={"Content-Disposition": 'attachment; filename="ndstack.html"'})


def _add_errors(app: FastAPI) -> None:
    """Answer every error with a message in JSON."""

    @app.exception_handler(NdstackError)
    def wrong(request: Request, error: NdstackError) -> JSONResponse:
        kinds = ((UnknownModelError, 404), (SupersededError, 409), (TooManyError, 503))
        status = next((code for kind, code in kinds if isinstance(error, kind)), 400)
        return JSONResponse({"error": str(error)}, status)

    @app.exception_handler(HTTPException)
    def missing(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": f"{error.detail}: {request.url.path[:100]}"}, error.status_code)

    @app.exception_handler(RequestValidationError)
    def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return JSONResponse({"error": f"{where}: {first['msg']}"}, 422)
