package api

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"colabrelay/executor/jupyter"
	"colabrelay/executor/kernel"
	"colabrelay/shared/contract"
	"colabrelay/shared/line/linetest"
	"colabrelay/shared/stacks"
)

// BenchmarkQuick compares 1+1 through signed HTTP with the bare round trip to the
// same kernel: an execute_request and its reply.
func BenchmarkQuick(b *testing.B) {
	s := newLiveStand(b, stacks.Old(b))
	b.Run("bare", func(b *testing.B) {
		err := s.api.Queue.WithIdleKernel(b.Context(), func(ctx context.Context, k *kernel.Kernel) error {
			for b.Loop() {
				if _, err := k.Client.Request(ctx, jupyter.Shell, jupyter.MsgExecuteRequest, jupyter.ExecuteRequest{Code: "1+1"}); err != nil {
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

// BenchmarkContent compares a file of 256 MiB, read in sealed parts of 8 MiB, eight
// in parallel, with the same file from net/http in one stream.
func BenchmarkContent(b *testing.B) {
	const size, part, parallel = 256 << 20, contract.MaxFilePart, 8
	s := newFileStand(b)
	s.write("big", noise(size))
	etag := s.stat("big", "").ETag
	s.api.signed = &keyRate{burst: 1 << 30, tokens: 1 << 30, now: time.Now}
	sealed := s.url
	s.serve(http.FileServer(http.Dir(s.work)))
	plain := s.url
	b.Run("plain", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			res, err := s.http.Get(plain + "/big")
			if err != nil {
				b.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, res.Body); err != nil || n != size {
				b.Fatal(n, err)
			}
			res.Body.Close()
		}
	})
	s.url = sealed
	b.Run("sealed", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			var next atomic.Int64
			var wg sync.WaitGroup
			for range parallel {
				wg.Go(func() {
					for offset := next.Add(part) - part; offset < size; offset = next.Add(part) - part {
						s.fetch(contentPath("big", etag, offset, part))
					}
				})
			}
			wg.Wait()
		}
	})
}

// fetch reads a part and opens it.
func (s fileStand) fetch(path string) {
	req := s.request("GET", path, nil)
	x := s.sign(req, nil, time.Now())
	res, err := s.http.Do(req)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer res.Body.Close()
	if _, err := linetest.Open(x, res, res.Body, true); err != nil {
		s.t.Error(err)
	}
}
