package spool

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tend-run/tend/process"
)

// Tags of the encoded spec. Part of the format: do not change or reuse.
const (
	tagID = 1 + iota
	tagName
	tagTag
	tagArg // repeated
	tagShell
	tagEnv // repeated, key NUL value
	tagInherit
	tagDir
	tagUser
	tagStdin
	tagPTY // cols u16, rows u16
	tagTimeout
	tagTimeoutScope
	tagRlimit // repeated: resource, soft, hard as uvarints
	tagNice
	tagOOMScoreAdj
	tagMemoryMax
	tagPidsMax
	tagCPUWeight
	tagRetentionLimit
	tagRetentionPolicy
	tagRetentionTTL
	tagKillWithoutReaders
	tagLabel // repeated, key NUL value
	tagRetentionSync
	tagRetentionPin
	tagCPUs      // the bits of a float64
	tagHiddenEnv // repeated
)

// EncodeSpec appends the encoded spec: tag and length as uvarints, then the
// value; zero values are left out. Numbers are zigzag varints.
func EncodeSpec(b []byte, s *process.Spec) []byte {
	str := func(tag uint64, v string) {
		if v != "" {
			b = field(b, tag, v)
		}
	}
	num := func(tag uint64, v int64) {
		if v != 0 {
			var n [binary.MaxVarintLen64]byte
			b = field(b, tag, string(binary.AppendVarint(n[:0], v)))
		}
	}
	str(tagID, string(s.ID))
	str(tagName, s.Name)
	str(tagTag, s.Tag)
	for _, a := range s.Argv {
		b = field(b, tagArg, a)
	}
	str(tagShell, s.Shell)
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		b = field(b, tagEnv, k+"\x00"+s.Env[k])
	}
	for _, k := range s.HiddenEnv {
		b = field(b, tagHiddenEnv, k)
	}
	num(tagInherit, int64(s.Inherit))
	str(tagDir, s.Dir)
	str(tagUser, s.User)
	num(tagStdin, int64(s.Stdin))
	if s.PTY != nil {
		var n [4]byte
		binary.LittleEndian.PutUint16(n[:], s.PTY.Cols)
		binary.LittleEndian.PutUint16(n[2:], s.PTY.Rows)
		b = field(b, tagPTY, string(n[:]))
	}
	num(tagTimeout, int64(s.Timeout))
	num(tagTimeoutScope, int64(s.TimeoutScope))
	for _, r := range s.Limits.Rlimits {
		v := binary.AppendUvarint(nil, uint64(r.Resource))
		v = binary.AppendUvarint(v, r.Soft)
		b = field(b, tagRlimit, string(binary.AppendUvarint(v, r.Hard)))
	}
	num(tagNice, int64(s.Limits.Nice))
	num(tagOOMScoreAdj, int64(s.Limits.OOMScoreAdj))
	num(tagMemoryMax, s.Limits.MemoryMax)
	num(tagPidsMax, s.Limits.PidsMax)
	num(tagCPUWeight, s.Limits.CPUWeight)
	num(tagCPUs, int64(math.Float64bits(s.Limits.CPUs)))
	num(tagRetentionLimit, s.Retention.Limit)
	num(tagRetentionPolicy, int64(s.Retention.Policy))
	num(tagRetentionTTL, int64(s.Retention.TTL))
	num(tagRetentionSync, int64(s.Retention.Sync))
	if s.Retention.Pin {
		num(tagRetentionPin, 1)
	}
	num(tagKillWithoutReaders, int64(s.KillWithoutReaders))
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		b = field(b, tagLabel, k+"\x00"+s.Labels[k])
	}
	return b
}

// field is not inlined: in each place of EncodeSpec it would take 19 KB together.
//
//go:noinline
func field(b []byte, tag uint64, v string) []byte {
	b = binary.AppendUvarint(b, tag)
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

var errSpec = errors.New("encoded spec is damaged")

// DecodeSpec is the inverse of EncodeSpec. Unknown tags are skipped, so that a
// spool written by a newer version can be read.
func DecodeSpec(b []byte) (process.Spec, error) {
	var s process.Spec
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 {
			return s, errSpec
		}
		b = b[n:]
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return s, errSpec
		}
		v := b[n : n+int(size)]
		b = b[n+int(size):]
		if err := setField(&s, tag, v); err != nil {
			return s, err
		}
	}
	return s, nil
}

func setField(s *process.Spec, tag uint64, v []byte) error {
	num := func() int64 { n, _ := binary.Varint(v); return n }
	switch tag {
	case tagID:
		s.ID = process.ID(v)
	case tagName:
		s.Name = string(v)
	case tagTag:
		s.Tag = string(v)
	case tagArg:
		s.Argv = append(s.Argv, string(v))
	case tagShell:
		s.Shell = string(v)
	case tagEnv:
		return setPair(&s.Env, v)
	case tagHiddenEnv:
		s.HiddenEnv = append(s.HiddenEnv, string(v))
	case tagLabel:
		return setPair(&s.Labels, v)
	case tagInherit:
		s.Inherit = process.Inherit(num())
	case tagDir:
		s.Dir = string(v)
	case tagUser:
		s.User = string(v)
	case tagStdin:
		s.Stdin = process.StdinMode(num())
	case tagPTY:
		if len(v) != 4 {
			return errSpec
		}
		s.PTY = &process.Size{Cols: binary.LittleEndian.Uint16(v), Rows: binary.LittleEndian.Uint16(v[2:])}
	case tagTimeout:
		s.Timeout = time.Duration(num())
	case tagTimeoutScope:
		s.TimeoutScope = process.Scope(num())
	case tagRlimit:
		return setRlimit(s, v)
	case tagNice:
		s.Limits.Nice = int(num())
	case tagOOMScoreAdj:
		s.Limits.OOMScoreAdj = int(num())
	case tagMemoryMax:
		s.Limits.MemoryMax = num()
	case tagPidsMax:
		s.Limits.PidsMax = num()
	case tagCPUWeight:
		s.Limits.CPUWeight = num()
	case tagCPUs:
		s.Limits.CPUs = math.Float64frombits(uint64(num()))
	case tagRetentionLimit:
		s.Retention.Limit = num()
	case tagRetentionPolicy:
		s.Retention.Policy = process.RetentionPolicy(num())
	case tagRetentionTTL:
		s.Retention.TTL = time.Duration(num())
	case tagRetentionSync:
		s.Retention.Sync = process.Sync(num())
	case tagRetentionPin:
		s.Retention.Pin = num() == 1
	case tagKillWithoutReaders:
		s.KillWithoutReaders = time.Duration(num())
	}
	return nil
}

func setPair(m *map[string]string, v []byte) error {
	k, val, ok := strings.Cut(string(v), "\x00")
	if !ok {
		return errSpec
	}
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[k] = val
	return nil
}

func setRlimit(s *process.Spec, v []byte) error {
	var n [3]uint64
	for i := range n {
		x, w := binary.Uvarint(v)
		if w <= 0 {
			return errSpec
		}
		n[i], v = x, v[w:]
	}
	s.Limits.Rlimits = append(s.Limits.Rlimits, process.Rlimit{Resource: int(n[0]), Soft: n[1], Hard: n[2]})
	return nil
}
