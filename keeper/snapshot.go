//go:build linux

package keeper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/tend-run/tend/keeper/vault"
)

// A snapshot is how a keeper hands itself over to the program that it executes
// in its place: what is neither on the board nor in the spool. It is written to
// a memfd whose number is on the command line.
//
// # Format (do not change; new kinds and tags may be added)
//
//	8 bytes  magic "tendSNP" and the version, one byte
//	records  u8 kind, u32 LE length, fields
//	end      u8 0, u32 LE CRC-32C of all before it
//
// Fields are a uvarint tag, a uvarint length, and a value: a zigzag varint, or
// bytes. Unknown kinds and tags are skipped, and a field that is missing is
// zero; so a keeper reads the snapshots of the version before and of the one
// after it. Descriptors are numbers, and 0 for one that is not open.
//
//	kind  fields
//	1     keeper: see snapshotKeeper
//	2     process: see snapshotProc
//
// Version 2 added tag 40 (owed) of a process.
const (
	snapshotMagic  = "tendSNP"
	oldestSnapshot = 1
	newestSnapshot = 2

	snapshotEnd  = 0
	kindKeeper   = 1
	kindProcess  = 2
	maxSnapshot  = 256 << 20 // bytes
	headSnapshot = len(snapshotMagic) + 1
)

var errSnapshot = errors.New("snapshot is damaged")

// snapshot is the content. The structs hold numbers alone, each with its tag.
type snapshot struct {
	Keeper snapshotKeeper
	Procs  []snapshotProc
}

type snapshotKeeper struct {
	EP, Board, Wake, Listen, Lock int64
	Vaults                        [vault.Count]int64 // sockets
	Complete                      [vault.Count]bool  // it holds everything
	Upgrades                      int64              // so far
	Began                         int64              // monotonic clock, ns
	Killed, Limited               []byte             // slots, see slotList
}

type snapshotProc struct {
	Slot, Gen, PID, PIDFD int64
	Flags                 int64 // snap*
	Out                   [2]snapshotStream
	StdinFD               int64
	Mem, FeedR, FeedW     int64
	IndexEnd              int64
	Limit, Policy         int64
	Cause, CauseSig       int64
	TreeFD                int64
	Owed                  []byte // journal records
}

type snapshotStream struct {
	FD, StageR, StageW   int64
	Base, End, Unpunched int64
	Flags                int64 // snap*
}

// Flags in snapshots.
const (
	snapStarted = 1 << iota
	snapExited
	snapGone
	snapFinal
	snapPTY
	snapGroup
	snapStdinOpen
	snapTreeTimeout

	snapFallback = 1 << (iota - 8)
	snapWaiting
	snapEOF
)

// field ties a tag to a number or bytes of one struct.
type field struct {
	tag    uint64
	number *int64
	flag   *bool
	bytes  *[]byte
	since  byte // the version that added it; 0: the first
}

func (k *snapshotKeeper) fields() []field {
	return []field{
		{tag: 1, number: &k.EP}, {tag: 2, number: &k.Board}, {tag: 3, number: &k.Wake}, {tag: 4, number: &k.Listen}, {tag: 5, number: &k.Lock},
		{tag: 6, number: &k.Vaults[vault.Anchor]}, {tag: 7, flag: &k.Complete[vault.Anchor]},
		{tag: 8, number: &k.Vaults[vault.Mirror]}, {tag: 9, flag: &k.Complete[vault.Mirror]},
		{tag: 10, number: &k.Upgrades}, {tag: 11, number: &k.Began}, {tag: 12, bytes: &k.Killed}, {tag: 13, bytes: &k.Limited},
	}
}

func (p *snapshotProc) fields() []field {
	f := []field{
		{tag: 1, number: &p.Slot}, {tag: 2, number: &p.Gen}, {tag: 3, number: &p.PID}, {tag: 4, number: &p.PIDFD}, {tag: 5, number: &p.Flags},
		{tag: 6, number: &p.StdinFD}, {tag: 7, number: &p.Mem}, {tag: 8, number: &p.FeedR}, {tag: 9, number: &p.FeedW},
		{tag: 10, number: &p.IndexEnd}, {tag: 11, number: &p.Limit}, {tag: 12, number: &p.Policy},
		{tag: 13, number: &p.Cause}, {tag: 14, number: &p.CauseSig}, {tag: 15, number: &p.TreeFD},
	}
	for i := range p.Out {
		s, at := &p.Out[i], uint64(20+10*i)
		f = append(f, field{tag: at, number: &s.FD}, field{tag: at + 1, number: &s.StageR}, field{tag: at + 2, number: &s.StageW},
			field{tag: at + 3, number: &s.Base}, field{tag: at + 4, number: &s.End}, field{tag: at + 5, number: &s.Unpunched}, field{tag: at + 6, number: &s.Flags})
	}
	return append(f, field{tag: 40, bytes: &p.Owed, since: 2})
}

// encode writes the snapshot in a version.
func (s *snapshot) encode(version byte) []byte {
	b := append([]byte(snapshotMagic), version)
	b = appendRecord(b, kindKeeper, s.Keeper.fields(), version)
	var p snapshotProc
	fields := p.fields()
	for i := range s.Procs {
		p = s.Procs[i]
		b = appendRecord(b, kindProcess, fields, version)
	}
	b = append(b, snapshotEnd)
	return binary.LittleEndian.AppendUint32(b, checksum(b))
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

func appendRecord(b []byte, kind byte, fields []field, version byte) []byte {
	b = append(b, kind, 0, 0, 0, 0)
	start := len(b)
	var num [binary.MaxVarintLen64]byte
	for _, f := range fields {
		if f.since > version {
			continue
		}
		var value []byte
		switch {
		case f.number != nil && *f.number != 0:
			value = num[:binary.PutVarint(num[:], *f.number)]
		case f.flag != nil && *f.flag:
			value = num[:binary.PutVarint(num[:], 1)]
		case f.bytes != nil:
			value = *f.bytes
		}
		if len(value) == 0 {
			continue
		}
		b = binary.AppendUvarint(b, f.tag)
		b = binary.AppendUvarint(b, uint64(len(value)))
		b = append(b, value...)
	}
	binary.LittleEndian.PutUint32(b[start-4:], uint32(len(b)-start))
	return b
}

// decodeSnapshot reads a snapshot of this version or one beside it.
func decodeSnapshot(b []byte) (*snapshot, error) {
	if len(b) < headSnapshot+5 || string(b[:len(snapshotMagic)]) != snapshotMagic {
		return nil, errSnapshot
	}
	if v := b[len(snapshotMagic)]; v < oldestSnapshot || v > newestSnapshot+1 {
		return nil, fmt.Errorf("snapshot has version %d; %d to %d are known", v, oldestSnapshot, newestSnapshot+1)
	}
	end := len(b) - 5
	if b[end] != snapshotEnd || binary.LittleEndian.Uint32(b[end+1:]) != checksum(b[:end+1]) {
		return nil, errSnapshot
	}
	s := &snapshot{}
	var p snapshotProc
	fields := p.fields()
	for rest := b[headSnapshot:end]; len(rest) > 0; {
		if len(rest) < 5 {
			return nil, errSnapshot
		}
		kind, n := rest[0], int(binary.LittleEndian.Uint32(rest[1:]))
		if n < 0 || n > len(rest)-5 {
			return nil, errSnapshot
		}
		body := rest[5 : 5+n]
		rest = rest[5+n:]
		var err error
		switch kind {
		case kindKeeper:
			err = decodeFields(body, s.Keeper.fields())
		case kindProcess:
			p = snapshotProc{}
			err = decodeFields(body, fields)
			s.Procs = append(s.Procs, p)
		}
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

func decodeFields(b []byte, fields []field) error {
	next := 0 // fields are written in order: most often the next one is it
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 {
			return errSnapshot
		}
		size, m := binary.Uvarint(b[n:])
		if m <= 0 || size > uint64(len(b)-n-m) {
			return errSnapshot
		}
		value := b[n+m : n+m+int(size)]
		b = b[n+m+int(size):]
		for i := range fields {
			at := (next + i) % len(fields)
			f := &fields[at]
			if f.tag != tag {
				continue
			}
			next = at + 1
			if f.bytes != nil {
				*f.bytes = append([]byte(nil), value...)
				break
			}
			v, n := binary.Varint(value)
			if n != len(value) {
				return errSnapshot
			}
			if f.number != nil {
				*f.number = v
			} else {
				*f.flag = v != 0
			}
			break
		}
	}
	return nil
}

// slotList writes slots as uvarints, and slotsOf reads them.
func slotList(m map[uint32]bool) (b []byte) {
	for slot := range m {
		b = binary.AppendUvarint(b, uint64(slot))
	}
	return b
}

func slotsOf(b []byte) map[uint32]bool {
	m := map[uint32]bool{}
	for len(b) > 0 {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > 1<<31 {
			return m
		}
		m[uint32(v)] = true
		b = b[n:]
	}
	return m
}
