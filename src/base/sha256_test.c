// The published vectors of SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 4231),
// and the same digest however the bytes are cut.
#include "base/sha256.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

// The digest as hexadecimal text.
static void assert_hex(const uint8_t got[AT_SHA256_BYTES], const char *want) {
  char text[2 * AT_SHA256_BYTES + 1];
  for (int i = 0; i < AT_SHA256_BYTES; i++)
    snprintf(text + 2 * i, 3, "%02x", got[i]);
  assert_string_equal(text, want);
}

static at_bytes bytes_of(const char *z) {
  return (at_bytes){(const uint8_t *)z, strlen(z)};
}

// Examples of FIPS 180-4, whole and in pieces.
static void digests_are_as_published(void **state) {
  (void)state;
  static const struct {
    const char *in, *out;
  } cases[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc",
       "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmno"
       "pjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
       "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"}};
  uint8_t out[AT_SHA256_BYTES];
  at_sha256 s;
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    at_sha256_start(&s);
    at_sha256_add(&s, bytes_of(cases[i].in));
    at_sha256_end(&s, out);
    assert_hex(out, cases[i].out);
  }
  // A million times `a`, cut anyhow.
  char *a = malloc(1000);
  memset(a, 'a', 1000);
  at_sha256_start(&s);
  for (size_t left = 1000000, i = 0; left; i++) {
    size_t n = AT_MIN(left, i * 37 % 1000);
    at_sha256_add(&s, (at_bytes){(uint8_t *)a, n});
    left -= n;
  }
  at_sha256_end(&s, out);
  assert_hex(
      out, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  free(a);
}

// Examples of RFC 4231.
static void keyed_digests_are_as_published(void **state) {
  (void)state;
  uint8_t key[131], data[50], out[AT_SHA256_BYTES];
  at_hmac h;
  memset(key, 0x0b, 20);
  at_hmac_start(&h, (at_bytes){key, 20});
  at_hmac_add(&h, bytes_of("Hi There"));
  at_hmac_end(&h, out);
  assert_hex(
      out, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  at_hmac_start(&h, bytes_of("Jefe"));
  at_hmac_add(&h, bytes_of("what do ya want "));
  at_hmac_add(&h, bytes_of("for nothing?"));
  at_hmac_end(&h, out);
  assert_hex(
      out, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  memset(key, 0xaa, sizeof key);
  memset(data, 0xdd, sizeof data);
  at_hmac_start(&h, (at_bytes){key, 20});
  at_hmac_add(&h, (at_bytes){data, sizeof data});
  at_hmac_end(&h, out);
  assert_hex(
      out, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  at_hmac_start(&h, (at_bytes){key, sizeof key});
  at_hmac_add(&h, bytes_of("Test Using Larger Than Block-Size Key - Hash Key "
                           "First"));
  at_hmac_end(&h, out);
  assert_hex(
      out, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

// Equal, and different in the first and in the last byte.
static void secrets_compare(void **state) {
  (void)state;
  assert_true(at_secrets_equal("abcd", "abcd", 4));
  assert_true(at_secrets_equal("abcd", "abce", 3));
  assert_false(at_secrets_equal("abcd", "abce", 4));
  assert_false(at_secrets_equal("abcd", "bbcd", 4));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(digests_are_as_published),
      cmocka_unit_test(keyed_digests_are_as_published),
      cmocka_unit_test(secrets_compare),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
