-- A ship chandler's orders. `shop.db` beside it was made with: sqlite3 shop.db < shop.sql
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, port TEXT NOT NULL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30)
INSERT INTO customers SELECT i, 'Customer ' || i, CASE i % 3 WHEN 0 THEN 'Bristol' WHEN 1 THEN 'Hull' ELSE 'Leith' END FROM n;

CREATE TABLE orders (
    id INTEGER PRIMARY KEY, customer INTEGER NOT NULL REFERENCES customers, placed DATE NOT NULL, state TEXT NOT NULL,
    pence INTEGER NOT NULL, weight REAL
);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)
INSERT INTO orders SELECT i, i * 7 % 30 + 1, date('2026-01-01', '+' || (i * 3 % 300) || ' days'),
    CASE i % 4 WHEN 0 THEN 'open' WHEN 1 THEN 'packed' ELSE 'shipped' END, i * 37 % 9000 + 250,
    CASE WHEN i % 5 THEN i * 13 % 400 / 8.0 END FROM n;

CREATE TABLE lines (
    order_id INTEGER NOT NULL REFERENCES orders, place INTEGER NOT NULL, article TEXT NOT NULL, pieces INTEGER NOT NULL,
    PRIMARY KEY (order_id, place)
) WITHOUT ROWID;
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 799)
INSERT INTO lines SELECT i / 2 + 1, i % 2 + 1, CASE i % 3 WHEN 0 THEN 'rope' WHEN 1 THEN 'tar' ELSE 'canvas' END, i % 9 + 1 FROM n;

CREATE VIEW open_orders AS
    SELECT orders.id, customers.name AS customer, orders.placed, orders.pence
    FROM orders JOIN customers ON customers.id = orders.customer WHERE orders.state = 'open';
