//go:build linux

package main

import (
	"testing"
)

func TestInTurnsEachFollowsEachOtherAsOften(t *testing.T) {
	t.Parallel()
	const n = 4
	var order []int
	all := make([]func(), n)
	for i := range all {
		all[i] = func() { order = append(order, i) }
	}
	inTurns(n, all...)
	var first, follows [n][n]int
	for i, what := range order {
		first[what][i%n]++
		if i%n > 0 {
			follows[what][order[i-1]]++
		}
	}
	for i := range n {
		for j := range n {
			if first[i][j] != 1 || i != j && follows[i][j] != 1 {
				t.Fatalf("the order of 4 rounds is %v", order)
			}
		}
	}
}
