"""The 40 columns of the CSV input, known to the generator and to the peers."""

# Kinds: int:DIGITS (at most so many), decimal:SPREAD (six places, mean 0),
# text:DISTINCT (number of distinct values, 3 to 20 characters), bool.
COLUMN_KINDS = {
    "order_id": "int:10",
    "country": "text:60",
    "price": "decimal:90",
    "quantity": "int:1",
    "discount": "decimal:0.2",
    "is_member": "bool",
    "latitude": "decimal:40",
    "longitude": "decimal:90",
    "city": "text:5000",
    "customer_id": "int:8",
    "age": "int:2",
    "balance": "decimal:900",
    "street": "text:50000",
    "weight_kg": "decimal:9",
    "height_m": "decimal:0.9",
    "session_seconds": "int:4",
    "num_clicks": "int:3",
    "click_rate": "decimal:0.3",
    "score_1": "decimal:1",
    "score_2": "decimal:1",
    "score_3": "decimal:1",
    "score_4": "decimal:1",
    "score_5": "decimal:1",
    "product": "text:20000",
    "category": "text:25",
    "stock": "int:5",
    "rating": "decimal:2",
    "temperature": "decimal:20",
    "humidity": "decimal:0.5",
    "device": "text:12",
    "browser": "text:8",
    "epoch_seconds": "int:9",
    "distance_km": "decimal:300",
    "duration_h": "decimal:5",
    "tax": "decimal:10",
    "margin": "decimal:10",
    "campaign": "text:300",
    "comment": "text:50000",
    "postcode_area": "int:6",
    "views": "int:7",
}

INT_COLUMNS = [n for n, k in COLUMN_KINDS.items() if k.startswith("int")]
DECIMAL_COLUMNS = [n for n, k in COLUMN_KINDS.items() if k.startswith("decimal")]
TEXT_COLUMNS = [n for n, k in COLUMN_KINDS.items() if k.startswith("text")]
BOOL_COLUMNS = [n for n, k in COLUMN_KINDS.items() if k == "bool"]
