from shop.prices import price


def total(items):
    return sum(price(i) for i in items)
