/* SPDX-License-Identifier: Apache-2.0 */
/* The files of the page, which the build turns into arrays. */
#pragma once

#include <stddef.h>

#define PAGE_FILE(name)                                                                            \
    extern const unsigned char(name)[];                                                            \
    extern const size_t name##_size

PAGE_FILE(page_elements_js);
PAGE_FILE(page_format_js);
PAGE_FILE(page_gateway_js);
PAGE_FILE(page_icon_svg);
PAGE_FILE(page_index_html);
PAGE_FILE(page_style_css);

#undef PAGE_FILE
