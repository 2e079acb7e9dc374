package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

var sizeUnits = map[string]int64{
	"": 1, "b": 1,
	"k": 1 << 10, "kib": 1 << 10, "kb": 1e3,
	"m": 1 << 20, "mib": 1 << 20, "mb": 1e6,
	"g": 1 << 30, "gib": 1 << 30, "gb": 1e9,
	"t": 1 << 40, "tib": 1 << 40, "tb": 1e12,
}

// parseSize reads a number of bytes: "4096", "16KiB", "64m", "1.5GB".
func parseSize(text string) (int64, error) {
	i := strings.IndexFunc(text, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if i < 0 {
		i = len(text)
	}
	unit, ok := sizeUnits[strings.ToLower(strings.TrimSpace(text[i:]))]
	n, err := strconv.ParseFloat(text[:i], 64)
	if !ok || err != nil {
		return 0, errors.New("is no size; write 4096, 16KiB or 64MB")
	}
	if n *= float64(unit); n > math.MaxInt64/2 {
		return 0, errors.New("is too large")
	}
	return int64(n), nil
}

// amount is a number of lines, or of bytes if it has a unit.
type amount struct {
	n     int64
	bytes bool
}

// parseAmount reads the argument of --head and --tail.
func parseAmount(text string) (amount, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if n < 0 {
			return amount{}, errors.New("is negative; give a number of lines, or a size such as 16KiB")
		}
		return amount{n: n}, nil
	}
	n, err := parseSize(text)
	if err != nil {
		return amount{}, errors.New("is neither a number of lines nor a size such as 16KiB")
	}
	return amount{n: n, bytes: true}, nil
}

// sizeText shows bytes in the unit a person would choose.
func sizeText(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d", n)
	}
	f, i := float64(n)/1024, 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	return fmt.Sprintf("%.1f%c", f, units[i])
}
