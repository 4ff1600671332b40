package api

import (
	"context"
	"testing"

	"colabrelay/executor/jupyter"
	"colabrelay/executor/kernel"
	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
)

// BenchmarkQuick compares 1+1 through signed HTTP with the bare round trip to the
// same kernel: an execute_request and its reply.
func BenchmarkQuick(b *testing.B) {
	s := newLiveStand(b, stacks.Old(b))
	b.Run("bare", func(b *testing.B) {
		err := s.api.Queue.Hold(b.Context(), func(ctx context.Context, life *kernel.Life) error {
			for b.Loop() {
				if _, err := life.Client.Request(ctx, jupyter.Shell, jupyter.MsgExecuteRequest, jupyter.ExecuteRequest{Code: "1+1"}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	})
	b.Run("signed without the kernel", func(b *testing.B) {
		for b.Loop() {
			s.call("GET", contract.PathKernel, nil)
		}
	})
	b.Run("signed", func(b *testing.B) {
		for b.Loop() {
			if e := s.submit("1+1", 20); e.Status != contract.StatusSucceeded {
				b.Fatalf("status is %s", e.Status)
			}
		}
	})
}
