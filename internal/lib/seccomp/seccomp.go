// Package seccomp writes filters of system calls (seccomp(2)): classic BPF programs that
// the kernel runs before each call of a program and of all that it starts.
//
// # Why a tree
//
// When a filter is installed the kernel runs it once for each of its system calls, about
// 900, to learn which are always allowed (kernel/seccomp.c, seccomp_cache_prepare). A
// comparison with one number after the other costs every program at its start; so the
// numbers are cut in ranges with one answer each, which are found by halving.
package seccomp

import (
	"cmp"
	"errors"
	"maps"
	"slices"
)

// ErrUnsupported says that there is no list for this processor.
var ErrUnsupported = errors.New("there is no list of system calls for this processor")

// Instruction is struct sock_filter of linux/filter.h.
type Instruction struct {
	Code   uint16
	JT, JF uint8
	K      uint32
}

// Filter is a program of at most 255 instructions.
type Filter []Instruction

// Rule denies a system call. Of several for one call the first one that fits counts.
type Rule struct {
	Call  uint32 // its number
	Errno uint16 // what it answers; 0: success, and nothing is done
	When  When   // zero: always
	And   *When  // and this; nil: no more
	Key   *Key   // calls that have it are allowed, and no other rule is for the call; nil: there is none
}

// Key is a secret in the last three arguments of a system call that has no use for them: the
// lower half of each, and the upper one. What has the filter knows no key: an exec leaves
// nothing in registers, and the filter itself is shown to who has CAP_SYS_ADMIN outside.
type Key [6]uint32

// When narrows a rule to calls with such an argument. Only the lower 32 bits are looked
// at, which is all that the kernel looks at in most arguments, or only the upper ones.
type When struct {
	Arg   uint8    // 0 to 5
	Upper bool     // the upper 32 bits
	Bits  uint32   // it has one of these bits
	Is    []uint32 // it is one of these
	IsNot []uint32 // it is none of these
}

func (w *When) always() bool { return w.Bits == 0 && w.Is == nil && w.IsNot == nil }

// Codes of instructions (linux/bpf_common.h), and answers (linux/seccomp.h).
const (
	load      = 0x20 // BPF_LD | BPF_W | BPF_ABS
	jumpEqual = 0x15 // BPF_JMP | BPF_JEQ | BPF_K
	jumpLess  = 0x35 // BPF_JMP | BPF_JGE | BPF_K: JF is the way of what is less
	jumpBits  = 0x45 // BPF_JMP | BPF_JSET | BPF_K
	answer    = 0x06 // BPF_RET | BPF_K
	exclusive = 0xa4 // BPF_ALU | BPF_XOR | BPF_K
	either    = 0x4c // BPF_ALU | BPF_OR | BPF_X
	keep      = 0x07 // BPF_MISC | BPF_TAX

	allow = 0x7fff0000
	deny  = 0x00050000 // and the errno
)

// Offsets in struct seccomp_data.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16 // the lower half of a word comes first
)

const enosys = 38

// x32 is the bit of the numbers of the x32 ABI. On other processors nothing is there.
const x32 = 0x40000000

// Assemble writes a filter that denies what the rules say and allows the rest. Another
// arch (AUDIT_ARCH_*) has no system calls, nor has x32. It panics if the rules are too
// many: lists are constants.
func Assemble(arch uint32, rules []Rule) Filter {
	rules = slices.SortedStableFunc(slices.Values(rules), func(a, b Rule) int { return cmp.Compare(a.Call, b.Call) })
	a := assembler{f: Filter{{load, 0, 0, offArch}, {jumpEqual, 1, 0, arch}, {answer, 0, 0, deny | enosys}, {load, 0, 0, offNumber}}}
	ranges := []span{{0, a.answer(allow)}}
	add := func(from uint32, b *block) {
		last := &ranges[len(ranges)-1]
		switch {
		case last.block == b: // continues
		case last.from == from:
			last.block = b
		default:
			ranges = append(ranges, span{from, b})
		}
	}
	for len(rules) > 0 {
		n := 1
		for n < len(rules) && rules[n].Call == rules[0].Call {
			n++
		}
		b := a.answer(allow)
		for _, r := range slices.Backward(rules[:n]) {
			b = a.rule(r, b)
		}
		add(rules[0].Call, b)
		add(rules[0].Call+1, a.answer(allow))
		rules = rules[n:]
	}
	add(x32, a.answer(deny|enosys))
	a.tree(slices.CompactFunc(ranges, func(x, y span) bool { return x.block == y.block }))
	return a.link()
}

// span is a range of numbers up to the next.
type span struct {
	from  uint32
	block *block
}

// block is a piece of program that ends with an answer; to jump there takes its place.
type block struct {
	code  []Instruction
	jumps []jump // out of it
	place int
}

// jump leads from an instruction to a block.
type jump struct {
	at   int // in the block, or in the whole program
	less bool
	to   *block
}

type assembler struct {
	f       Filter
	jumps   []jump
	answers map[uint32]*block
	blocks  []*block // tests before answers: jumps lead forward
}

// answer is the block that answers with v.
func (a *assembler) answer(v uint32) *block {
	if a.answers == nil {
		a.answers = map[uint32]*block{}
	}
	if a.answers[v] == nil {
		a.answers[v] = &block{code: []Instruction{{answer, 0, 0, v}}}
	}
	return a.answers[v]
}

// rule is the block for a call, which continues to rest if the rule does not fit.
func (a *assembler) rule(r Rule, rest *block) *block {
	no := a.answer(deny | uint32(r.Errno))
	if r.Key != nil {
		return a.key(r.Key, no, rest)
	}
	if r.And != nil {
		no = a.test(r.And, no, rest)
	}
	return a.test(&r.When, no, rest)
}

// test is the block for a condition.
func (a *assembler) test(w *When, yes, no *block) *block {
	if w.always() {
		return yes
	}
	half := uint32(0)
	if w.Upper {
		half = 4
	}
	b := &block{code: []Instruction{{load, 0, 0, offArgs + 8*uint32(w.Arg) + half}}}
	add := func(code uint16, k uint32, to *block) {
		b.jumps = append(b.jumps, jump{at: len(b.code), to: to})
		b.code = append(b.code, Instruction{code, 0, 0, k})
	}
	rest := no
	if w.Bits != 0 {
		add(jumpBits, w.Bits, yes)
	}
	for _, v := range w.Is {
		add(jumpEqual, v, yes)
	}
	for _, v := range w.IsNot {
		rest = yes
		add(jumpEqual, v, no)
	}
	b.jumps = append(b.jumps, jump{at: len(b.code) - 1, less: true, to: rest})
	a.place(b)
	return b
}

// place puts a block before those that were made before it, to which it leads.
func (a *assembler) place(b *block) { a.blocks = slices.Insert(a.blocks, 0, b) }

// key is the block for a call that needs a key. It takes as long for one that is nearly
// right: half of a key is found by nobody with a clock.
func (a *assembler) key(k *Key, no, yes *block) *block {
	b := &block{}
	add := func(code uint16, v uint32) { b.code = append(b.code, Instruction{code, 0, 0, v}) }
	for i, word := range k {
		add(load, offArgs+8*3+4*uint32(i))
		add(exclusive, word)
		if i > 0 {
			add(either, 0)
		}
		if i < len(k)-1 {
			add(keep, 0)
		}
	}
	at := len(b.code)
	add(jumpEqual, 0)
	b.jumps = []jump{{at: at, to: yes}, {at: at, less: true, to: no}}
	a.place(b)
	return b
}

// tree appends the search for a range.
func (a *assembler) tree(ranges []span) {
	half := len(ranges) / 2
	at := len(a.f)
	a.f = append(a.f, Instruction{jumpLess, 0, 0, ranges[half].from})
	for _, side := range []struct {
		less   bool
		ranges []span
	}{{true, ranges[:half]}, {false, ranges[half:]}} {
		if len(side.ranges) == 1 {
			a.jumps = append(a.jumps, jump{at, side.less, side.ranges[0].block})
			continue
		}
		a.set(at, side.less, len(a.f))
		a.tree(side.ranges)
	}
}

// set leads one way of a jump to an instruction.
func (a *assembler) set(at int, less bool, to int) {
	by := to - at - 1
	if by < 0 || by > 255 {
		panic("too many rules")
	}
	if less {
		a.f[at].JF = uint8(by)
	} else {
		a.f[at].JT = uint8(by)
	}
}

// link appends the blocks and leads the jumps to them.
func (a *assembler) link() Filter {
	for _, v := range slices.Sorted(maps.Keys(a.answers)) {
		a.blocks = append(a.blocks, a.answers[v])
	}
	for _, b := range a.blocks {
		b.place = len(a.f)
		for _, j := range b.jumps {
			j.at += b.place
			a.jumps = append(a.jumps, j)
		}
		a.f = append(a.f, b.code...)
	}
	for _, j := range a.jumps {
		a.set(j.at, j.less, j.to.place)
	}
	return a.f
}
