"""Routes that call their dependencies themselves."""

from typing import Annotated

import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, Request, Response
from fastapi.testclient import TestClient

from app.api.direct import DirectRoute, direct


async def path_of(request: Request) -> str:
    return request.url.path


async def documented(x_name: Annotated[str, Header()]) -> str:
    return f"solved {x_name}"


async def from_request(request: Request) -> str:
    return f"direct {request.headers['x-name']}"


async def needs_a_header(x_name: Annotated[str, Header()]) -> str:
    return f"solved {x_name}"


NamedDirectly = Annotated[str, Depends(direct(documented, from_request))]
Named = Annotated[str, Depends(needs_a_header)]


async def all_direct(path: Annotated[str, Depends(path_of)], name: NamedDirectly) -> Response:
    return Response(f"{path} {name}")


async def one_solved(path: Annotated[str, Depends(path_of)], name: Named) -> Response:
    return Response(f"{path} {name}")


async def one_plain(path: Annotated[str, Depends(path_of)], number: int) -> Response:
    return Response(f"{path} {number}")


@pytest.fixture
def client() -> TestClient:
    router = APIRouter(route_class=DirectRoute)
    router.get("/direct")(all_direct)
    router.get("/guarded", dependencies=[Depends(needs_a_header)])(all_direct)
    router.get("/solved")(one_solved)
    router.get("/plain")(one_plain)
    app = FastAPI()
    app.include_router(router)
    return TestClient(app)


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/direct", "/direct direct bob"),
        # Whatever needs more than the request is FastAPI's to solve, for the whole route.
        ("/guarded", "/guarded solved bob"),
        ("/solved", "/solved solved bob"),
        ("/plain?number=2", "/plain 2"),
    ],
)
def test_only_a_route_that_needs_no_more_than_the_request_is_direct(
    client: TestClient, path: str, answer: str
) -> None:
    assert client.get(path, headers={"X-Name": "bob"}).text == answer


def test_a_direct_route_is_documented_by_the_signatures(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]

    names = [each["name"] for each in paths["/direct"]["get"]["parameters"]]
    assert names == ["x-name"]
