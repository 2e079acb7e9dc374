#!/bin/bash
set -eu
cd "$APP"
printf '\n\ndef count(items):\n    return len(items)\n' >> shop/orders.py
sed -i '1i from shop.orders import total\n' shop/prices.py
