package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/view"
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

// sizeOf reads the size that a flag was given; "" is 0.
func sizeOf(flag, text string) (n int64, err error) {
	if text == "" {
		return 0, nil
	}
	if n, err = parseSize(text); err != nil {
		err = usageError(fmt.Sprintf("%s %s: %v", flag, text, err))
	}
	return n, err
}

// parseAmount reads the argument of --head and --tail: a number of lines, or of bytes if it has
// a unit.
func parseAmount(text string) (a view.Amount, err error) {
	if a.Lines, err = strconv.ParseInt(text, 10, 64); err == nil {
		if a.Lines < 0 {
			return a, errors.New("is negative; give a number of lines, or a size such as 16KiB")
		}
		return a, nil
	}
	a.Lines = 0
	if a.Bytes, err = parseSize(text); err != nil {
		err = errors.New("is neither a number of lines nor a size such as 16KiB")
	}
	return a, err
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
