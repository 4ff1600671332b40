package main

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestOnlyASilenceThatLastsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slogOf(&patience{out: &out})
		try := func(ctx context.Context, after time.Duration, args ...any) {
			<-time.After(after)
			log.DebugContext(ctx, "asked", args...)
		}
		ctx := t.Context()
		try(ctx, 0, "err", "a blip")
		try(ctx, time.Second)
		try(ctx, time.Minute, "err", "down")
		try(ctx, time.Second, "err", "down")
		if out.Len() > 0 {
			t.Errorf("told at once: %q", out.String())
		}
		try(ctx, 2*time.Second, "err", "down\x1b[2J")
		try(ctx, time.Hour, "err", "down")
		try(ctx, time.Second)
		ended, cancel := context.WithCancel(ctx)
		cancel()
		try(ended, 0, "err", "we gave up")
		try(ended, time.Minute, "err", "we gave up")
		want := "relay: waiting for the VM, where the run may still go on: down\nrelay: the VM answers again\n"
		if out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	})
}
