"""A web shop as a FastAPI service: what the tests of plugins/openapi call.

    python shop.py PORT        0: any free port. The first line of standard output is the port.

Its 8,412 orders are made up, the same every time. FastAPI itself writes the OpenAPI document, at /openapi.json.
"""

import asyncio
import socket
import sys
from enum import Enum
from typing import Annotated

import uvicorn
from fastapi import Body, Depends, FastAPI, Form, Header, HTTPException, Path, Query, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from fastapi.security import APIKeyHeader, HTTPBearer
from pydantic import BaseModel, Field

app = FastAPI(title="Shop", version="1.0.0", generate_unique_id_function=lambda route: route.name)

ORDERS = 8412


class Status(str, Enum):
    open = "open"
    packed = "packed"
    shipped = "shipped"
    returned = "returned"


class Address(BaseModel):
    street: str
    city: str
    country: str = Field("DE", min_length=2, max_length=2)


class Line(BaseModel):
    sku: str
    quantity: int = Field(gt=0)
    price: float


class NewOrder(BaseModel):
    customer: str = Field(description="Id of the customer.")
    lines: list[Line] = Field(min_length=1)
    note: str | None = None
    ship_to: Address | None = None


class Category(BaseModel):
    name: str
    children: list["Category"] = []


class Price(BaseModel):
    sku: str
    cents: int


def order(number: int) -> dict:
    status = list(Status)[number % 4].value
    # An id beyond what a double holds, and a text that has to be escaped.
    return {
        "id": 9007199254740993 + number,
        "number": number,
        "customer": f"c{number % 97:03}",
        "status": status,
        "total": round(number * 1.1 % 500, 2),
        "currency": "EUR",
        "note": f'order "{number}" — handle with care',
        "placed": f"2026-{number % 12 + 1:02}-{number % 28 + 1:02}T08:00:00Z",
        "city": ["Köln", "Łódź", "東京", "Reno"][number % 4],
    }


def orders(status: Status | None, limit: int | None = None, offset: int = 0) -> list[dict]:
    wanted = (order(number) for number in range(ORDERS))
    found = [one for one in wanted if status is None or one["status"] == status.value]
    return found[offset:] if limit is None else found[offset : offset + limit]


Limit = Annotated[int | None, Query(ge=1, le=10000, description="At most this many orders.")]
Wanted = Annotated[Status | None, Query(description="Only orders in this state.")]


@app.get("/orders", tags=["orders"], summary="All orders")
def list_orders(status: Wanted = None, limit: Limit = None):
    """Every order, or as many as `limit` says. There is no default and no second page."""
    return orders(status, limit)


@app.get("/orders/export", tags=["orders"], summary="All orders, always")
def export_orders(status: Wanted = None):
    """Every order. It takes no limit."""
    return orders(status)


@app.get("/orders/pages", tags=["orders"])
def page_orders(
    response: Response,
    page: Annotated[int, Query(ge=1)] = 1,
    per_page: Annotated[int, Query(ge=1, le=200)] = 30,
):
    """One page of orders; the next one is in the Link header."""
    if page * per_page < ORDERS:
        response.headers["link"] = f'</orders/pages?page={page + 1}&per_page={per_page}>; rel="next"'
    return orders(None, per_page, (page - 1) * per_page)


@app.get("/orders/search", tags=["orders"])
def search_orders(
    status: Annotated[list[Status] | None, Query()] = None,
    cities: Annotated[str | None, Query(alias="city[name]")] = None,
):
    """What the service understood of the question, and how many orders it finds."""
    found = [one for one in orders(None) if not status or one["status"] in status]
    found = [one for one in found if cities is None or one["city"] == cities]
    return {"status": status, "city": cities, "count": len(found)}


@app.get("/orders/{number}", tags=["orders"])
def get_order(number: Annotated[int, Path(ge=0)]):
    if number >= ORDERS:
        raise HTTPException(404, f"there is no order {number}")
    return order(number)


@app.post("/orders", tags=["orders"], status_code=201)
def create_order(new: NewOrder):
    return {"created": new.model_dump(mode="json"), "lines": len(new.lines)}


@app.put("/orders/{number}/address", tags=["orders"])
def set_address(number: int, address: Address):
    return {"number": number, "address": address}


@app.patch("/orders/{number}", tags=["orders"])
def change_order(number: int, status: Annotated[Status, Body(embed=True)]):
    return {"number": number, "status": status}


@app.delete("/orders/{number}", tags=["orders"], status_code=204)
def delete_order(number: int):
    return Response(status_code=204)


@app.post("/orders/{number}/comments", tags=["orders"])
def comment_order(number: int, text: Annotated[str, Form()], stars: Annotated[int, Form()] = 3):
    return {"number": number, "text": text, "stars": stars}


@app.get("/customers", tags=["customers"])
def list_customers():
    return {"customers": [{"id": f"c{number:03}", "name": f"Customer {number}"} for number in range(97)]}


@app.get("/customers/{customer}", tags=["customers"])
def get_customer(customer: str):
    return {"id": customer, "name": f"Customer {customer}"}


@app.get("/customers/{customer}/orders", tags=["customers"])
def list_customer_orders(customer: str):
    return [one for one in orders(None) if one["customer"] == customer]


@app.put("/prices", tags=["prices"])
def set_prices(prices: list[Price]):
    return {"set": len(prices)}


@app.get("/prices/{sku:path}", tags=["prices"])
def get_price(sku: str):
    return {"sku": sku, "cents": 100}


@app.post("/categories", tags=["categories"])
def create_category(category: Category):
    return category


@app.get("/echo", tags=["echo"])
def echo(text: str = "", x_trace: Annotated[str | None, Header()] = None):
    return {"text": text, "trace": x_trace}


@app.get("/statistics", tags=["echo"])
def statistics():
    return {"orders": ORDERS, "states": [state.value for state in Status]}


@app.get("/formats/text", tags=["formats"], response_class=PlainTextResponse)
def text():
    return "".join(f"line {number}\n" for number in range(300))


@app.get("/formats/image", tags=["formats"])
def image():
    return Response(PIXEL, media_type="image/png")


@app.get("/formats/pdf", tags=["formats"])
def pdf():
    return Response(b"%PDF-1.4\n%\xff\xff\n", media_type="application/pdf")


@app.get("/formats/archive", tags=["formats"])
def archive():
    return Response(bytes(range(256)) * 4096, media_type="application/zip")


@app.get("/formats/exact", tags=["formats"])
def exact():
    return Response(b'{ "big": 9007199254740993,\n  "small": 1.50, "long": 1e400 }\n', media_type="application/json")


@app.get("/formats/nothing", tags=["formats"], status_code=204)
def nothing():
    return Response(status_code=204)


@app.get("/formats/large", tags=["formats"])
def large(mebibytes: int):
    async def pieces():
        for _ in range(mebibytes):
            yield b"x" * (1 << 20)

    # Its length is said before, so that a reader can refuse it before it comes.
    length = str(mebibytes << 20)
    return StreamingResponse(pieces(), media_type="text/plain", headers={"content-length": length})


@app.get("/errors/{status}", tags=["errors"])
def error(status: int, length: int = 20):
    return JSONResponse({"detail": "x" * length}, status_code=status)


@app.get("/moved", tags=["errors"])
def moved():
    return Response(status_code=307, headers={"location": "/orders"})


@app.get("/slow", tags=["slow"])
async def slow(seconds: float):
    """Answers after so many seconds, unless the caller has gone."""
    await asyncio.sleep(seconds)
    return {"slept": seconds}


@app.get("/slow/calls", tags=["slow"])
def slow_calls():
    """How many connections of callers are open, this one among them."""
    return {"open": len(SERVER.server_state.connections)}


@app.get("/key/header", tags=["keys"])
def header_key(key: Annotated[str, Depends(APIKeyHeader(name="X-Api-Key"))]):
    if key != "hunter2":
        raise HTTPException(401, f"the key {key} is not known")
    return {"who": "header"}


@app.get("/key/query", tags=["keys"])
def query_key(key: str):
    if key != "hunter2":
        raise HTTPException(403, f"the key {key} is not known")
    return {"who": "query"}


@app.get("/key/bearer", tags=["keys"])
def bearer_key(token: Annotated[object, Depends(HTTPBearer())]):
    if token.credentials != "hunter2":
        raise HTTPException(401, f"the key {token.credentials} is not known")
    return {"who": "bearer"}


@app.get("/key/basic", tags=["keys"])
def basic_key(authorization: Annotated[str, Header()]):
    return {"authorization": authorization}


PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cf"
    "c0f01f0005000201ff5c27b40b0000000049454e44ae426082"
)


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
    print(listener.getsockname()[1], flush=True)
    SERVER = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    # Who started it holds its standard input; it ends with that.
    SERVER.run(sockets=[listener])
