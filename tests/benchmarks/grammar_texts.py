"""Texts for `cfg.library.py`: what models are asked to write, by grammar."""

from __future__ import annotations

JSON_TEXTS = [
    '{"name": "Ada Lovelace", "born": 1815, "fields": ["mathematics"], "alive": false}',
    '[{"id": 1, "price": 12.50, "tags": ["a", "b"]}, {"id": 2, "price": -3.1e-7, "tags": []}]',
    '{"a":{"b":{"c":{"d":[[[1,2,3],[4,5,6]],[[7,8,9]]]}}},"text":"She said \\"hi\\" \\u00e9\\n"}',
    """{
  "type": "FeatureCollection",
  "features": [
    {"type": "Feature", "geometry": {"type": "Point", "coordinates": [13.4050, 52.5200]},
     "properties": {"name": "Berlin", "population": 3645000, "capital": true}},
    {"type": "Feature", "geometry": {"type": "LineString", "coordinates": [[1.5, 2], [3, 4.25]]},
     "properties": null}
  ]
}""",
    """{"日本語": "東京", "emoji": "😀", "long": "The quick brown fox jumps over the dog, twice; \
then it rests (for a while) and goes on: slowly, carefully -- and never looks back."}""",
    """{
    "openapi": "3.1.0",
    "info": {"title": "Orders", "version": "2.0.1", "license": {"name": "MIT"}},
    "paths": {
        "/orders/{id}": {
            "get": {
                "parameters": [{"name": "id", "in": "path", "required": true}],
                "responses": {"200": {"description": "The order."}, "404": {"description": "None."}}
            }
        }
    },
    "components": {"schemas": {"Order": {"type": "object", "properties": {"total": {"type":
        "number", "minimum": 0}, "placed": {"type": "string", "format": "date-time"}}}}}
}""",
    """{"messages": [{"role": "system", "content": "You are an assistant."}, {"role": "user", \
"content": "What is the boiling point of water at 2,000 m?\\nAnswer in one sentence."}, {"role": \
"assistant", "content": "At about 2,000 metres water boils near 93 °C."}], "temperature": 0.2, \
"max_tokens": 256, "stream": false, "stop": ["\\n\\n", "END"], "seed": 42}""",
    """[["date", "open", "high", "low", "close"], ["2024-03-01", 101.5, 103.25, 100.0, 102.75], \
["2024-03-04", 102.75, 104.5, 102.1, 104.0], ["2024-03-05", 104.0, 104.2, 99.9, 100.05]]""",
    """{"recipe": {"title": "Pancakes", "for": 4, "ingredients": [{"item": "flour", "grams": 200},
 {"item": "milk", "ml": 300}, {"item": "eggs", "count": 2}, {"item": "salt", "pinch": true}],
 "steps": ["Whisk everything until smooth.", "Let the batter rest for 20 minutes.",
 "Fry in butter, about a minute a side."], "notes": null, "rating": 4.5}}""",
    """{"error": {"code": -32602, "message": "Invalid params", "data": {"path": ["a", 0, "b"],
 "expected": "integer", "got": "1e400"}}, "id": "c0ffee-00", "jsonrpc": "2.0"}""",
]

SQL_TEXTS = [
    "SELECT name, age FROM users WHERE age >= 18 AND country = 'DE' ORDER BY age DESC LIMIT 10;",
    """SELECT u.id, COUNT(*) AS n, SUM(o.total) FROM users AS u LEFT JOIN orders o
ON o.user_id = u.id WHERE o.created_at BETWEEN '2024-01-01' AND '2024-12-31'
GROUP BY u.id HAVING COUNT(*) > 3""",
    """SELECT CASE WHEN score > 90 THEN 'excellent' WHEN score > 70 THEN 'good' ELSE 'poor' END
AS grade, AVG(score) FROM (SELECT student, score * 1.5 + 2 AS score FROM results) AS r
GROUP BY 1""",
    """SELECT DISTINCT city FROM addresses WHERE zip IN (SELECT zip FROM regions WHERE name LIKE
'North%') UNION ALL SELECT city FROM warehouses WHERE closed IS NOT NULL""",
    """SELECT a.x, b.y FROM alpha a INNER JOIN beta b ON a.k = b.k CROSS JOIN gamma
WHERE NOT (a.x < 3.14 OR b.y <> 'it''s') AND a.z % 2 = 0
ORDER BY a.x, b.y DESC LIMIT 100 OFFSET 20""",
    """SELECT department, MAX(salary) - MIN(salary) AS spread, COUNT(DISTINCT manager_id)
FROM employees WHERE hired > '2019-06-30' AND status NOT IN ('left', 'retired', 'on leave')
GROUP BY department HAVING AVG(salary) > 50000 AND COUNT(*) >= 5 ORDER BY spread DESC""",
    """SELECT p.name || ' (' || c.label || ')' AS title, ROUND(p.price * 1.19, 2) AS gross
FROM products p JOIN categories c ON c.id = p.category_id
WHERE p.stock > 0 AND (c.label = 'books' OR c.label LIKE '%music%') LIMIT 50;""",
    """SELECT year, SUM(CASE WHEN kind = 'refund' THEN -amount ELSE amount END) AS net
FROM payments WHERE account IN (SELECT id FROM accounts WHERE country IS NOT NULL)
GROUP BY year ORDER BY year ASC""",
    "SELECT * FROM events EXCEPT SELECT * FROM archived_events INTERSECT SELECT * FROM imported",
    """SELECT first_name, last_name, email FROM customers WHERE last_order IS NULL
AND NOT unsubscribed = 1 AND LOWER(email) LIKE '%@example.org' ORDER BY last_name, first_name""",
]

PYTHON_TEXTS = [
    "def area(radius: float) -> float:\n    return 3.14159 * radius ** 2\n",
    """import os.path
words = [w.lower() for w in text.split(" ") if w]
print(len(words), words[0])
""",
    """def fizz(n: int = 100):
    for i in range(1, n + 1):
        print('Fizz' if i % 3 == 0 else i)
    return None
""",
    """def classify(score, limits={"low": 10, "high": 90}):
    if score < limits['low']:
        label = 'low'
    elif score > limits['high']:
        label = 'high'
    else:
        label = f"middle {score}"
    return (label, score)
""",
    "total = sum([item.price * item.quantity for item in basket if item.quantity > 0])\n",
    """key = lambda a, b: (a.x - b.x) ** 2 + (a.y - b.y) ** 2
best = min(points, key=distance)
matrix[1:, :-1] += weights @ inputs.T
""",
    """def moving_average(values, window=5):
    total = 0.0
    averages = []
    for value in values:
        total += value
        averages.append(total / window)
    return averages[window - 1:]
""",
    """def parse_header(line: str) -> dict:
    name, value = line.split(':', 1)
    if not name or name != name.strip():
        raise ValueError("malformed header: " + repr(line))
    return {"name": name.lower(), "value": value.strip(), "length": len(line)}
""",
    """import collections
counts = collections.Counter(tokens)
common = counts.most_common(10)
ratio = common[0][1] / len(tokens) if tokens else 0
assert ratio <= 1.0
""",
    """def search(graph, start, goal, seen=None):
    queue = [(start, [start])]
    for node in queue:
        seen.add(node)
        queue.extend([(n, path + [n]) for n in graph[node] if n != start])
    return None
""",
]
