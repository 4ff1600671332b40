package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"colabrelay/shared/e2e/harness"
)

const (
	bigCells   = 500
	bigPicture = 75 << 10 // bytes; as base64, 500 of them are 50 MB
	bigMemory  = 200      // MiB that the relay may take
)

// bigNotebook measures calls of the tools on a notebook of 50 MB with pictures.
func bigNotebook(ctx context.Context, b *bench) ([]row, error) {
	c, err := b.relayConfig("http://127.0.0.1:1") // these tools need no VM
	if err != nil {
		return nil, err
	}
	c.Dir = b.disk
	c.Env = append(c.Env, "RELAY_TOOLSETS=core,notebook", "CHECKPOINT_DIR="+filepath.Join(b.disk, "checkpoints"))
	path := filepath.Join(b.disk, "big.ipynb")
	if err := os.WriteFile(path, picturesOf(bigCells), 0o600); err != nil {
		return nil, err
	}
	h, err := b.startHost(ctx, c)
	if err != nil {
		return nil, err
	}
	edits := 0
	s, err := timing{n: 9, warmUps: 1}.inTurn(ctx,
		way{name: "get_cells", do: func(ctx context.Context) error {
			_, err := call(ctx, h, "get_cells", map[string]any{"notebook_path": path})
			return err
		}},
		way{name: "update_cell", do: func(ctx context.Context) error {
			edits++
			_, err := call(ctx, h, "update_cell", map[string]any{"notebook_path": path, "cellId": "cell-250", "content": fmt.Sprint("x = ", edits)})
			return err
		}})
	if err != nil {
		return nil, err
	}
	read, edit := latency("get_cells of a notebook of 50 MB", s[0]), latency("update_cell of it", s[1])
	read.target, edit.target = within(s[0].median(), time.Second), within(s[1].median(), time.Second)
	m, err := harness.MemoryOf(h.PID())
	return []row{read, edit, {what: "relay: largest RSS meanwhile", figure: fmt.Sprintf("%.0f MiB", m.Peak), target: atMost(m.Peak, bigMemory, " MiB")}}, err
}

// picturesOf is a notebook of n cells that each show a picture.
func picturesOf(n int) []byte {
	picture := base64.StdEncoding.EncodeToString(noise(bigPicture))
	output := fmt.Sprintf(`{"data": {"image/png": %q}, "metadata": {}, "output_type": "display_data"}`, picture)
	return cellsWith(n, onePlusOne, output)
}

// cellsWith is a notebook of n cells with the same source and outputs.
func cellsWith(n int, source, outputs string) []byte {
	var text strings.Builder
	text.WriteString("{\n \"cells\": [")
	for i := range n {
		fmt.Fprintf(&text, "%s\n  {\n   \"cell_type\": \"code\",\n   \"execution_count\": null,\n   \"id\": \"cell-%d\",\n   \"metadata\": {},\n   \"outputs\": [%s],\n   \"source\": [%q]\n  }",
			strings.Repeat(",", min(i, 1)), i, outputs, source)
	}
	text.WriteString("\n ],\n \"metadata\": {},\n \"nbformat\": 4,\n \"nbformat_minor\": 5\n}\n")
	return []byte(text.String())
}
