// Package tendpb converts between the domain types of package process and the messages
// of tend.v1. The server's native face and the Go SDK share it, so that both directions
// of each conversion and the table of errors stand side by side.
//
// Enumerations have the same numbers on both sides; a test checks that.
// Conversions to messages never fail. Conversions from messages check what the
// domain types cannot hold (sizes above 65535, unknown numbers, times out of
// range) and name the field in a [*process.InvalidError]; values that a
// domain type can hold and its rules forbid are refused by the domain.
package tendpb
