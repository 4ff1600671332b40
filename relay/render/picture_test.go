package render

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"testing"
)

func encodePNG(t testing.TB, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func noise(w, h int) *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	r := rand.New(rand.NewPCG(1, 2))
	for i := 0; i < len(img.Pix); i += 4 {
		binary.LittleEndian.PutUint32(img.Pix[i:], r.Uint32()|255<<24)
	}
	return img
}

func noisePNG(t testing.TB, w, h int) []byte { return encodePNG(t, noise(w, h)) }

func tinyPNG(t testing.TB) []byte {
	img := image.NewRGBA(image.Rect(0, 0, 3, 2))
	img.Set(1, 1, color.RGBA{R: 255, A: 255})
	return encodePNG(t, img)
}

func TestShrinkFitsAModel(t *testing.T) {
	var photo bytes.Buffer
	if err := jpeg.Encode(&photo, noise(600, 600), &jpeg.Options{Quality: 95}); err != nil {
		t.Fatal(err)
	}
	for name, original := range map[string][]byte{
		"a chart": encodePNG(t, image.NewRGBA(image.Rect(0, 0, 3200, 100))), "a photograph": photo.Bytes(),
	} {
		if before, _, err := image.DecodeConfig(bytes.NewReader(original)); err != nil || max(before.Width, before.Height) <= maxEdge && len(original) <= bytesAllowed {
			t.Errorf("%s fits already, or %v", name, err)
		}
		p, err := Shrink(t.Context(), bytes.NewReader(original))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		cfg, format, err := image.DecodeConfig(bytes.NewReader(p.Data))
		if err != nil || "image/"+format != p.MIMEType || cfg.Width != p.Width || cfg.Height != p.Height {
			t.Errorf("%s: %s %v, described as %s of %d×%d", name, format, err, p.MIMEType, p.Width, p.Height)
		}
		if max(p.Width, p.Height) > maxEdge || len(p.Base64()) > maxBase64 {
			t.Errorf("%s: %d×%d in %d bytes", name, p.Width, p.Height, len(p.Base64()))
		}
	}
}

// bomb returns a PNG that claims a size and contains no pixels.
func bomb(w, h uint32) []byte {
	b := []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")
	b = binary.BigEndian.AppendUint32(b, w)
	b = binary.BigEndian.AppendUint32(b, h)
	b = append(b, "\x08\x06\x00\x00\x00"...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[12:]))
}

func TestShrinkRefusesDamagedAndHugePictures(t *testing.T) {
	for name, b := range map[string][]byte{"empty": nil, "text": []byte("<html>"), "torn": noisePNG(t, 100, 100)[:2000], "header only": bomb(10, 10)} {
		if _, err := Shrink(t.Context(), bytes.NewReader(b)); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	for _, size := range [][2]uint32{{100_000, 100_000}, {1 << 30, 1}, {4096, 4097}} {
		if _, err := Shrink(t.Context(), bytes.NewReader(bomb(size[0], size[1]))); !errors.Is(err, errPixels) {
			t.Errorf("%v: %v", size, err)
		}
	}
}

// inJSON returns bytes as a JSON string in base64.
func inJSON(b []byte) string { return `"` + base64.StdEncoding.EncodeToString(b) + `"` }

func FuzzShrink(f *testing.F) {
	f.Add(tinyPNG(f))
	f.Add(bomb(1<<31-1, 1<<31-1))
	f.Fuzz(func(t *testing.T, b []byte) {
		if cfg, _, err := image.DecodeConfig(bytes.NewReader(b)); err == nil && cfg.Width > 1<<20/max(cfg.Height, 1) {
			return // valid but slow
		}
		p, err := Shrink(t.Context(), bytes.NewReader(b))
		if err == nil && (max(p.Width, p.Height) > maxEdge || len(p.Base64()) > maxBase64) {
			t.Errorf("%d×%d in %d bytes", p.Width, p.Height, len(p.Data))
		}
	})
}
